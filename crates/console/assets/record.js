// Conversations and settings as they are kept and shared. Every field is checked when it is
// read back: a browser's storage may be damaged, and a link may come from anyone.

export const MAX_COLUMNS = 4;
const MAX_TURNS = 2000;
// Each turn of a link is laid out before the page can be used.
const MAX_SHARED_TURNS = 500;
const MAX_TEXT_LENGTH = 4_000_000;
const FORMATS = ["chat", "responses", "messages", "native", "images", "embeddings"];

// Settings by name, each with its default.
const SETTINGS = {
  format: "chat", system: "", limit: "1024", temperature: "", effort: "", stream: true,
  tools: "", schema: "", strict: true, size: "", ratio: "", quality: "", "file-format": "",
};
export const SETTING_NAMES = Object.keys(SETTINGS);

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const text = (value, most = MAX_TEXT_LENGTH) => (typeof value === "string" ? value.slice(0, most) : "");
const list = (value, most) => (Array.isArray(value) ? value.slice(0, most) : []);

// Settings: the models, and a value for every name.
export function cleanSettings(value) {
  const given = isObject(value) ? value : {};
  const settings = { models: list(given.models, MAX_COLUMNS).filter((model) => typeof model === "string" && model) };
  for (const [name, standard] of Object.entries(SETTINGS)) {
    const found = Object.hasOwn(given, name) ? given[name] : standard;
    settings[name] = typeof found === typeof standard ? found : standard;
  }
  return settings;
}

const cleanCall = (call) => ({ id: text(call?.id, 1000), name: text(call?.name, 1000), args: text(call?.args) });

function cleanFile(file) {
  const type = text(file?.type, 200);
  const data = text(file?.data, Infinity);
  if (!/^[\w.+-]+\/[\w.+-]+$/.test(type) || /[^A-Za-z0-9+/=]/.test(data)) return undefined;
  return { type, name: text(file?.name, 500), data };
}

function cleanTurn(turn, shared) {
  if (!isObject(turn)) throw new Error("A message is damaged.");
  const skipped = turn.skipped === true || undefined;
  if (turn.role === "user") {
    const images = shared ? [] : list(turn.images, 100).map(cleanFile).filter(Boolean);
    return { role: "user", text: text(turn.text), images, skipped };
  }
  if (turn.role === "tool") {
    const results = list(turn.results, 100).map((r) => ({ id: text(r?.id, 1000), name: text(r?.name, 1000), text: text(r?.text) }));
    return { role: "tool", results, skipped };
  }
  if (turn.role !== "assistant") throw new Error("A message has no known role.");
  const answer = { role: "assistant", model: text(turn.model, 500), text: text(turn.text), calls: list(turn.calls, 100).map(cleanCall), skipped };
  if (shared) return answer;
  const whole = !turn.unfinished;
  Object.assign(answer, {
    format: FORMATS.includes(turn.format) ? turn.format : undefined,
    raw: whole && typeof turn.raw === "object" && turn.raw !== null ? turn.raw : undefined,
    thinking: text(turn.thinking), facts: text(turn.facts, 1000), priced: text(turn.priced, 1000),
    pictures: list(turn.pictures, 100).filter((url) => typeof url === "string"),
    objection: whole ? text(turn.objection, 10_000) : "The page was left before the answer ended.",
    // A call whose answer was not awaited has a cost too.
    called: turn.called === true || !whole,
    nanos: /^-?[0-9]{1,18}$/.test(turn.nanos) ? turn.nanos : undefined,
  });
  if (!whole && !answer.text) answer.skipped = true;
  return answer;
}

// Columns of a conversation: [{ model, turns }].
function cleanColumns(value, shared) {
  const isLong = (column) => Array.isArray(column?.turns) && column.turns.length > MAX_SHARED_TURNS;
  if (shared && list(value, MAX_COLUMNS).some(isLong)) throw new Error(`It has more than ${MAX_SHARED_TURNS} messages with one model.`);
  const columns = list(value, MAX_COLUMNS).map((column) => ({
    model: text(column?.model, 500),
    turns: list(column?.turns, MAX_TURNS).map((turn) => cleanTurn(turn, shared)),
  }));
  if (!columns.length) throw new Error("There is no conversation in it.");
  return columns;
}

// A kept conversation.
export function cleanConversation(value) {
  if (!isObject(value) || typeof value.id !== "string") throw new Error("It is damaged.");
  return {
    id: value.id, title: text(value.title, 200), named: value.named === true,
    created: Number(value.created) || 0, revision: Number(value.revision) || 0,
    settings: cleanSettings(value.settings), columns: cleanColumns(value.columns, false),
  };
}

// Shared text of a conversation: { settings, columns, title }.
export function cleanShared(value) {
  if (!isObject(value) || value.v !== 1) throw new Error("It is from another version.");
  return { title: text(value.title, 200), settings: cleanSettings(value.settings), columns: cleanColumns(value.columns, true) };
}

// Content of a link to a conversation.
export function sharedOf(conversation, settings, withMessages) {
  const columns = conversation.columns.map(({ model, turns }) => ({
    model,
    turns: !withMessages ? [] : turns.map(({ role, text: words, results, calls, model: answered, skipped }) =>
      ({ role, text: words, results, calls: calls?.length ? calls : undefined, model: answered, skipped })),
  }));
  return { v: 1, title: withMessages ? conversation.title : "", settings, columns };
}

// ---- Money ----

// Nanodollars of an amount such as "0.000006300", as a BigInt.
export function nanosOf(amount) {
  const found = /^(-?)([0-9]{1,9})(?:\.([0-9]{1,9}))?$/.exec(amount);
  if (!found) return undefined;
  const nanos = BigInt(found[2]) * 1_000_000_000n + BigInt((found[3] ?? "").padEnd(9, "0"));
  return found[1] ? -nanos : nanos;
}

// Dollars with at least two decimals and as many as the amount needs.
export function dollars(nanos) {
  const digits = (nanos < 0n ? -nanos : nanos).toString().padStart(10, "0");
  const cents = digits.slice(-9).replace(/0{1,7}$/, "");
  return `${nanos < 0n ? "-" : ""}$${digits.slice(0, -9)}.${cents}`;
}

// Cost of a conversation: { nanos, answers, unpriced }.
export function costOf(columns) {
  const answers = columns.flatMap(({ turns }) => turns).filter((turn) => turn.called);
  const priced = answers.filter((turn) => turn.nanos !== undefined);
  const nanos = priced.reduce((sum, turn) => sum + BigInt(turn.nanos), 0n);
  return { nanos, answers: answers.length, unpriced: answers.length - priced.length };
}
