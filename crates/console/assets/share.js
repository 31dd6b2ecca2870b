// Links that carry a conversation in their fragment, which browsers never send to a server.

const PREFIX = "#s=";
// Chat programs and mail cut longer links.
export const MAX_LINK_LENGTH = 32_000;
const MAX_FRAGMENT_LENGTH = 400_000;
// A link of a real conversation has a tenth of it.
const MAX_JSON_BYTES = 300_000;

const reads = (bytes, way) => new Blob([bytes]).stream().pipeThrough(way).getReader();

async function collect(reader, most) {
  const parts = [];
  let length = 0;
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    length += value.length;
    if (length > most) { await reader.cancel(); throw new Error("It is too large."); }
    parts.push(value);
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

// Fragment for an object.
export async function pack(object) {
  if (!globalThis.CompressionStream) throw new Error("This browser is too old to make links.");
  const plain = new TextEncoder().encode(JSON.stringify(object));
  const bytes = await collect(reads(plain, new CompressionStream("deflate-raw")), Infinity);
  let binary = "";
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return PREFIX + btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

export const isShared = (fragment) => fragment.startsWith(PREFIX);

// Object in a fragment.
export async function unpack(fragment) {
  if (fragment.length > MAX_FRAGMENT_LENGTH) throw new Error("It is too large.");
  if (!globalThis.DecompressionStream) throw new Error("This browser is too old to open it.");
  let binary;
  try {
    binary = atob(fragment.slice(PREFIX.length).replaceAll("-", "+").replaceAll("_", "/"));
  } catch { throw new Error("It is damaged or cut off."); }
  const bytes = Uint8Array.from(binary, (c) => c.charCodeAt(0));
  let plain;
  try {
    plain = await collect(reads(bytes, new DecompressionStream("deflate-raw")), MAX_JSON_BYTES);
  } catch (error) { throw error.message === "It is too large." ? error : new Error("It is damaged or cut off."); }
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(plain));
  } catch { throw new Error("It is damaged or cut off."); }
}
