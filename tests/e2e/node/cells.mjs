// What every client is asked, and the cells of the table of what works (see ../matrix.py).

import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { test } from "node:test";
import { crc32, deflateSync } from "node:zlib";

export const URL_ = process.env.GATEWAY_URL.replace(/\/$/, "");
export const KEY = process.env.GATEWAY_KEY;
export const TIMEOUT = 30_000;
export const MODELS = ["demo-chat", "demo-responses", "demo-messages", "demo-native"];

export const STORY = "Tell me a story about a harbour.";
export const LONG_STORY = "Tell me a very long and detailed story about a harbour.";
export const WEATHER = "What is the weather in Paris, in celsius?";
export const TWO_CITIES = "What is the weather in Paris and in Oslo, in celsius?";
export const IDLE = "Good morning.";
export const RESULT = '{"temperature": 21}';
export const LISBON = "Describe the harbour of Lisbon.";
export const NEWS = "Search the web: what is the latest news about lighthouses?";
export const TOOL = "get_weather";
export const ABOUT = "Current weather in a city";
export const PARIS = { city: "Paris", unit: "celsius" };
export const SHAPE = {
  type: "object",
  properties: {
    city: { type: "string" },
    unit: { type: "string", enum: ["celsius", "fahrenheit"] },
  },
  required: ["city", "unit"],
  additionalProperties: false,
};
export const HARBOUR = {
  type: "object",
  properties: { city: { type: "string" }, open: { type: "boolean" }, ships: { type: "integer" } },
  required: ["city", "open", "ships"],
  additionalProperties: false,
};

// A picture of one colour. The demo model tells the size of a picture it could read.
function png(width, height) {
  const chunk = (kind, data) => {
    const body = Buffer.concat([Buffer.from(kind), data]);
    const [length, sum] = [Buffer.alloc(4), Buffer.alloc(4)];
    length.writeUInt32BE(data.length);
    sum.writeUInt32BE(crc32(body));
    return Buffer.concat([length, body, sum]);
  };
  const head = Buffer.alloc(13);
  head.writeUInt32BE(width, 0);
  head.writeUInt32BE(height, 4);
  head.set([8, 2, 0, 0, 0], 8);
  const row = Buffer.alloc(1 + width * 3, 96);
  row[0] = 0;
  const rows = deflateSync(Buffer.concat(Array(height).fill(row)));
  const start = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
  const none = Buffer.alloc(0);
  return Buffer.concat([start, chunk("IHDR", head), chunk("IDAT", rows), chunk("IEND", none)]);
}

export const PICTURE = png(24, 16).toString("base64");
export const SEEN = "24 × 16 pixels";

const cells = [];

// A cell of the table: one test for each kind of upstream.
export function cell(format, feature, fact, run) {
  for (const model of MODELS) {
    test(`${fact} [${model}]`, { timeout: TIMEOUT }, async () => {
      const told = { format, client: "Node", feature, model, passed: false };
      cells.push(told);
      await run(model);
      told.passed = true;
    });
  }
}

process.on("exit", () => {
  if (process.env.E2E_CELLS) {
    const name = process.argv[1].split("/").at(-1).replace(".test.mjs", "");
    writeFileSync(`${process.env.E2E_CELLS}/node-${name}.json`, JSON.stringify(cells));
  }
});

// What a given shape asks for, and nothing else.
export function isHarbour(text) {
  const harbour = JSON.parse(text);
  assert.deepEqual(Object.keys(harbour).sort(), ["city", "open", "ships"]);
  assert.ok(Number.isInteger(harbour.ships));
}

export async function gather(stream) {
  const pieces = [];
  for await (const piece of stream) pieces.push(piece);
  return pieces;
}

export const near = (counted, exact) => assert.ok(exact / 2 < counted && counted < exact * 2);

export const failure = (promise) => promise.then(() => assert.fail("no error"), (error) => error);
