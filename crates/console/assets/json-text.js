// JSON that people write: tools and schemas, checked before they are sent. Errors name the place.

const MAX_DEPTH = 100;

// Error at a place of a text.
export class PlaceError extends Error {
  constructor(message, text, offset, path) {
    const before = text.slice(0, offset);
    const line = before.split("\n").length;
    const column = offset - before.lastIndexOf("\n");
    super(`Line ${line}, column ${column}${path ? ` (${path})` : ""}: ${message}`);
    this.offset = offset;
  }
}

// Reader of a JSON text (RFC 8259) that remembers the place of every value by its path.
class JsonReader {
  constructor(text, root) {
    this.text = text;
    this.at = 0;
    this.root = root;
    this.places = new Map();
  }

  fail(message, offset = this.at) { throw new PlaceError(message, this.text, offset); }

  space() { while (" \t\r\n".includes(this.text[this.at] ?? "x")) this.at += 1; }

  seen() { return this.at < this.text.length ? `"${String.fromCodePoint(this.text.codePointAt(this.at))}"` : "the end of the text"; }

  value(path, depth) {
    this.space();
    this.places.set(path, this.at);
    if (depth > MAX_DEPTH) this.fail(`More than ${MAX_DEPTH} levels are nested.`);
    const c = this.text[this.at];
    if (c === "{") return this.members("}", path, depth);
    if (c === "[") return this.members("]", path, depth);
    if (c === '"') return void this.string();
    const word = /(?:true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)(?![\w.+-])/y;
    word.lastIndex = this.at;
    const found = word.exec(this.text);
    if (!found) this.fail(c === "'" ? "Texts stand in double quotes." : `A value is expected here, not ${this.seen()}.`);
    this.at = word.lastIndex;
  }

  string() {
    const word = /"(?:[^"\\\u0000-\u001f]+|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*/y;
    const begin = this.at;
    word.lastIndex = begin;
    word.exec(this.text);
    this.at = word.lastIndex;
    if (this.text[this.at] === "\\") this.fail("This character cannot follow a backslash.", this.at + 1);
    if (this.text[this.at] !== '"') this.fail("The text has no closing quote on its line.", begin);
    this.at += 1;
    return JSON.parse(this.text.slice(begin, this.at));
  }

  members(close, path, depth) {
    const begin = this.at;
    const names = new Set();
    this.at += 1;
    this.space();
    if (this.text[this.at] === close) { this.at += 1; return; }
    for (let count = 0; ; count += 1) {
      this.space();
      if (close === "}") {
        const place = this.at;
        if (this.text[this.at] !== '"') this.fail(this.text[this.at] === "}" ? "A comma stands before the closing bracket." : `A field in double quotes is expected here, not ${this.seen()}.`);
        const name = this.string();
        if (names.has(name)) this.fail(`The field "${name}" is there twice.`, place);
        names.add(name);
        this.space();
        if (this.text[this.at] !== ":") this.fail(`A colon is expected after the field "${name}", not ${this.seen()}.`);
        this.at += 1;
        this.value(within(path, name), depth + 1);
      } else {
        if (this.text[this.at] === "]") this.fail("A comma stands before the closing bracket.");
        this.value(`${path}[${count}]`, depth + 1);
      }
      this.space();
      const c = this.text[this.at];
      if (c === undefined) this.fail(`The bracket "${this.text[begin]}" is not closed.`, begin);
      if (c !== "," && c !== close) this.fail(`A comma or "${close}" is expected here, not ${this.seen()}.`);
      this.at += 1;
      if (c === close) return;
    }
  }
}

const within = (path, name) => (/^[A-Za-z_$][\w$]*$/.test(name) ? `${path}.${name}` : `${path}[${JSON.stringify(name)}]`);

// Value of a JSON text, and a function that makes an error at a path.
function readJson(text, root) {
  const reader = new JsonReader(text, root);
  reader.value(root, 0);
  reader.space();
  if (reader.at < text.length) reader.fail(`Nothing may follow here, but there is ${reader.seen()}.`);
  return { value: JSON.parse(text), fail: (path, message) => { throw new PlaceError(message, text, reader.places.get(path) ?? 0, path); } };
}

// ---- Schemas ----

const TYPES = ["object", "array", "string", "number", "integer", "boolean", "null"];
const COUNTS = ["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"];
const NUMBERS = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"];

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const has = (object, name) => Object.hasOwn(object, name);

function checkType(type, path, fail) {
  const types = Array.isArray(type) ? type : [type];
  if (!types.length) fail(path, "At least one type is needed.");
  for (const one of types) {
    if (!TYPES.includes(one)) fail(path, `${JSON.stringify(one)} is no type. Types are ${TYPES.join(", ")}.`);
  }
}

// Checks a JSON Schema (https://json-schema.org/draft/2020-12) as far as its keywords are known here.
function checkSchema(node, path, fail, root = node) {
  if (typeof node === "boolean") return;
  if (!isObject(node)) fail(path, "A schema is an object.");
  const at = (name) => within(path, name);
  const check = (name, test, message) => { if (has(node, name) && !test(node[name])) fail(at(name), message); };
  if (has(node, "type")) checkType(node.type, at("type"), fail);
  for (const name of ["title", "description", "$id", "$schema", "format"]) check(name, (v) => typeof v === "string", `"${name}" is a text.`);
  for (const name of COUNTS) check(name, (v) => Number.isInteger(v) && v >= 0, `"${name}" is a whole number, 0 or more.`);
  for (const name of NUMBERS) check(name, (v) => typeof v === "number", `"${name}" is a number.`);
  check("enum", (v) => Array.isArray(v) && v.length > 0, '"enum" is a list of at least one value.');
  check("pattern", (v) => { try { new RegExp(v, "u"); return typeof v === "string"; } catch { return false; } }, '"pattern" is no regular expression.');
  check("required", (v) => Array.isArray(v) && v.every((name) => typeof name === "string"), '"required" is a list of names.');
  check("$ref", (v) => typeof v === "string" && v.startsWith("#"), '"$ref" begins with "#".');
  check("$ref", (v) => found(root, v), `"$ref" names ${JSON.stringify(node.$ref)}, which is not there.`);
  for (const name of ["properties", "patternProperties", "$defs", "definitions"]) {
    check(name, isObject, `"${name}" is an object.`);
    for (const [key, inner] of Object.entries(node[name] ?? {})) checkSchema(inner, within(at(name), key), fail, root);
  }
  if (has(node, "required") && isObject(node.properties)) {
    node.required.forEach((name, place) => {
      if (!has(node.properties, name)) fail(`${at("required")}[${place}]`, `"${name}" is not in "properties".`);
    });
  }
  for (const name of ["anyOf", "oneOf", "allOf", "prefixItems"]) {
    check(name, (v) => Array.isArray(v) && v.length > 0, `"${name}" is a list of at least one schema.`);
    (node[name] ?? []).forEach((inner, place) => checkSchema(inner, `${at(name)}[${place}]`, fail, root));
  }
  for (const name of ["items", "additionalProperties", "not"]) if (has(node, name)) checkSchema(node[name], at(name), fail, root);
}

// Returns true if a local reference leads somewhere.
function found(root, reference) {
  let node = root;
  for (const part of reference.slice(1).split("/").slice(1)) {
    const name = part.replaceAll("~1", "/").replaceAll("~0", "~");
    if (typeof node !== "object" || node === null || !has(node, name)) return false;
    node = node[name];
  }
  return true;
}

// Schema of an answer: { name, schema, strict }, or undefined for an empty text.
export function readSchema(text, strict) {
  if (!text.trim()) return undefined;
  const { value, fail } = readJson(text, "schema");
  if (!isObject(value)) fail("schema", "A schema is an object.");
  checkSchema(value, "schema", fail);
  const name = typeof value.title === "string" ? value.title.replace(/[^A-Za-z0-9_-]+/g, "_").slice(0, 64) : "";
  return { name: name || "answer", schema: value, strict };
}

// ---- Tools ----

const FIELDS = ["name", "description", "parameters", "strict"];

// A tool as { name, description, parameters }, from the form of any format.
function plainTool(tool, path) {
  if (isObject(tool.function)) return { tool: tool.function, path: `${path}.function` };
  const { type, input_schema: input, ...rest } = tool;
  return { tool: input === undefined ? (type === "function" ? rest : tool) : { ...rest, parameters: input }, path, input: input !== undefined };
}

// Tools of a request, or undefined for an empty text.
export function readTools(text) {
  if (!text.trim()) return undefined;
  const { value, fail } = readJson(text, "tools");
  if (!Array.isArray(value)) fail("tools", "Tools are a list: put square brackets around them.");
  const names = new Set();
  const tools = value.map((given, place) => {
    const start = `tools[${place}]`;
    if (!isObject(given)) fail(start, "A tool is an object.");
    const { tool, path, input } = plainTool(given, start);
    if (typeof tool.name !== "string") fail(has(tool, "name") ? `${path}.name` : path, 'A tool has a "name".');
    if (!/^[A-Za-z0-9_-]{1,64}$/.test(tool.name)) fail(`${path}.name`, "A name has at most 64 letters, digits, _ and -.");
    if (names.has(tool.name)) fail(`${path}.name`, `Two tools are named "${tool.name}".`);
    names.add(tool.name);
    for (const name of Object.keys(tool)) {
      if (!FIELDS.includes(name)) fail(within(path, name), `A tool has no field "${name}". Its fields are ${FIELDS.join(", ")}.`);
    }
    if (has(tool, "description") && typeof tool.description !== "string") fail(`${path}.description`, "A description is a text.");
    if (has(tool, "strict") && typeof tool.strict !== "boolean") fail(`${path}.strict`, '"strict" is true or false.');
    if (has(tool, "parameters")) {
      const at = `${path}.${input ? "input_schema" : "parameters"}`;
      if (!isObject(tool.parameters) || (tool.parameters.type !== undefined && tool.parameters.type !== "object")) fail(at, 'Parameters are a schema with the type "object".');
      checkSchema(tool.parameters, at, fail);
    }
    return tool;
  });
  return tools.length ? tools : undefined;
}
