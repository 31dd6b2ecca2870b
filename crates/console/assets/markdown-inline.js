// Text inside a block of Markdown: emphasis, code, links and line breaks, as DOM nodes.

import { element } from "./dom.js";

const MAX_URL_LENGTH = 2048;
const MAX_OPEN_MARKS = 24;
const MAX_OPEN_BRACKETS = 64;

// ---- Links ----

const SCHEMES = ["http:", "https:", "mailto:"];

// Address of a link, or undefined if its scheme is not allowed.
export function safeAddress(text) {
  if (text.length > MAX_URL_LENGTH) return undefined;
  try {
    const url = new URL(text);
    return SCHEMES.includes(url.protocol) ? url.href : undefined;
  } catch { return undefined; }
}

function link(address, children) {
  const node = element("a", "", children);
  node.href = address;
  node.title = address;
  node.target = "_blank";
  node.rel = "noopener noreferrer nofollow";
  return node;
}

// Destination and title after `](`, as { url, end }.
function destination(text, from) {
  let at = from;
  const last = Math.min(text.length, from + MAX_URL_LENGTH);
  const skipSpace = () => { while (at < last && (text[at] === " " || text[at] === "\n")) at += 1; };
  skipSpace();
  let url = "";
  if (text[at] === "<") {
    const begin = at += 1;
    while (at < last && !"<>\n".includes(text[at])) at += 1;
    if (text[at] !== ">") return undefined;
    url = text.slice(begin, at);
    at += 1;
  } else {
    let open = 0;
    const begin = at;
    for (; at < last; at += 1) {
      const c = text[at];
      if (c <= " ") break;
      if (c === "(" && (open += 1) > 8) return undefined;
      if (c === ")" && (open -= 1) < 0) break;
    }
    url = text.slice(begin, at);
  }
  skipSpace();
  if (text[at] === '"' || text[at] === "'") {
    const quote = text[at];
    at += 1;
    while (at < last && text[at] !== quote) at += 1;
    at += 1;
    skipSpace();
  }
  return text[at] === ")" ? { url, end: at + 1 } : undefined;
}

// Length of a web address that stands in a text, without the punctuation after it.
function bareAddressEnd(text, from) {
  let at = from;
  let open = 0;
  const last = Math.min(text.length, from + MAX_URL_LENGTH);
  while (at < last && text[at] > " " && !"<>`\"[]".includes(text[at])) {
    if (text[at] === "(") open += 1;
    if (text[at] === ")") open -= 1;
    at += 1;
  }
  for (; at > from; at -= 1) {
    const c = text[at - 1];
    if (c === ")" && open < 0) open += 1;
    else if (!".,;:!?'*_~]".includes(c)) break;
  }
  return at;
}

// ---- Text inside a block ----

const PUNCTUATION = /[!-/:-@[-`{-~]/;
const isSpace = (c) => c === undefined || /\s/.test(c);
const isWordless = (c) => isSpace(c) || /[\p{P}\p{S}]/u.test(c);

// Places of the runs of backticks by length, so that the end of a code span is found without a scan.
function backtickRuns(text) {
  const runs = new Map();
  for (let at = text.indexOf("`"); at >= 0; at = text.indexOf("`", at)) {
    const begin = at;
    while (text[at] === "`") at += 1;
    const length = at - begin;
    if (!runs.has(length)) runs.set(length, { places: [], next: 0 });
    runs.get(length).places.push(begin);
  }
  return runs;
}

class InlineParser {
  constructor(text) {
    this.text = text;
    this.nodes = [];
    this.buffer = "";
    // Open marks of emphasis: { char, size, place }. Their text is the node at that place.
    this.marks = [];
    // Open brackets: { place, image, dead }.
    this.brackets = [];
    this.runs = backtickRuns(text);
  }

  flush() {
    if (this.buffer) this.nodes.push(document.createTextNode(this.buffer));
    this.buffer = "";
  }

  add(node) { this.flush(); this.nodes.push(node); }

  // Takes the nodes from a place on, and forgets the marks and brackets among them.
  takeFrom(place) {
    this.flush();
    while (this.marks.length && this.marks.at(-1).place >= place) this.marks.pop();
    while (this.brackets.length && this.brackets.at(-1).place >= place) this.brackets.pop();
    return this.nodes.splice(place);
  }

  parse() {
    const { text } = this;
    const plain = /[^\\`*_~![\]<h\n]+/y;
    for (let at = 0; at < text.length; ) {
      plain.lastIndex = at;
      const words = plain.exec(text)?.[0] ?? "";
      this.buffer += words;
      at += words.length;
      if (at < text.length) at = this.step(at);
    }
    this.flush();
    return this.nodes;
  }

  // Reads what begins at a place and returns the place after it.
  step(at) {
    const { text } = this;
    switch (text[at]) {
      case "\\": return this.escape(at);
      case "`": return this.codeSpan(at);
      case "*": case "_": case "~": return this.emphasis(at);
      case "!":
        if (text[at + 1] !== "[") break;
        return this.openBracket(at, 2);
      case "[": return this.openBracket(at, 1);
      case "]": return this.closeBracket(at);
      case "<": return this.angleAddress(at);
      case "h":
        if (text.startsWith("http://", at) || text.startsWith("https://", at)) return this.bareAddress(at);
        break;
      case "\n": return this.lineEnd(at);
      default:
    }
    this.buffer += text[at];
    return at + 1;
  }

  escape(at) {
    const next = this.text[at + 1];
    if (next === "\n") { this.add(element("br")); return at + 2; }
    if (next !== undefined && PUNCTUATION.test(next)) { this.buffer += next; return at + 2; }
    this.buffer += "\\";
    return at + 1;
  }

  lineEnd(at) {
    const hard = this.buffer.endsWith("  ");
    this.buffer = this.buffer.trimEnd();
    this.flush();
    if (hard) this.nodes.push(element("br"));
    else this.buffer = "\n";
    return at + 1;
  }

  codeSpan(at) {
    const { text } = this;
    let end = at;
    while (text[end] === "`") end += 1;
    const run = this.runs.get(end - at);
    while (run.next < run.places.length && run.places[run.next] < end) run.next += 1;
    const close = run.places[run.next];
    if (close === undefined) { this.buffer += text.slice(at, end); return end; }
    let code = text.slice(end, close).replaceAll("\n", " ");
    if (code.startsWith(" ") && code.endsWith(" ") && code.trim()) code = code.slice(1, -1);
    this.add(element("code", "", code));
    return close + end - at;
  }

  emphasis(at) {
    const { text } = this;
    const char = text[at];
    let end = at;
    while (text[end] === char) end += 1;
    const length = end - at;
    const literal = () => { this.buffer += text.slice(at, end); return end; };
    if (length > 3 || (char === "~" && length !== 2)) return literal();
    const [before, after] = [text[at - 1], text[end]];
    const opens = !isSpace(after) && (!isWordless(after) || isWordless(before));
    const closes = !isSpace(before) && (!isWordless(before) || isWordless(after));
    const mayOpen = opens && (char !== "_" || !closes || isWordless(before));
    const mayClose = closes && (char !== "_" || !opens || isWordless(after));
    let left = length;
    while (mayClose && left > 0) {
      const opener = this.marks.findLast((mark) => mark.char === char);
      if (!opener) break;
      const size = Math.min(opener.size, left, 2);
      if (char === "~" && size < 2) break;
      const children = this.takeFrom(opener.place + 1);
      opener.size -= size;
      const sign = this.nodes[opener.place];
      sign.data = char.repeat(opener.size);
      if (!opener.size) { this.nodes.pop(); this.marks.pop(); }
      this.nodes.push(element(char === "~" ? "del" : size === 2 ? "strong" : "em", "", children));
      left -= size;
    }
    if (!left) return end;
    if (!mayOpen) { this.buffer += char.repeat(left); return end; }
    this.flush();
    if (this.marks.length >= MAX_OPEN_MARKS) this.marks.shift();
    this.marks.push({ char, size: left, place: this.nodes.length });
    this.nodes.push(document.createTextNode(char.repeat(left)));
    return end;
  }

  openBracket(at, length) {
    this.flush();
    if (this.brackets.length >= MAX_OPEN_BRACKETS) this.brackets.shift();
    this.brackets.push({ place: this.nodes.length, image: length === 2, dead: false });
    this.nodes.push(document.createTextNode(this.text.slice(at, at + length)));
    return at + length;
  }

  closeBracket(at) {
    const bracket = this.brackets.pop();
    const target = bracket && !bracket.dead && this.text[at + 1] === "(" ? destination(this.text, at + 2) : undefined;
    const address = target && safeAddress(target.url);
    if (!address) { this.buffer += "]"; return at + 1; }
    let children = this.takeFrom(bracket.place + 1);
    this.takeFrom(bracket.place);
    // A link in a link, such as the picture of a badge, leaves its text.
    children = children.flatMap((child) => (child.localName === "a" ? [...child.childNodes] : [child]));
    if (bracket.image) {
      const name = children.map((child) => child.textContent).join("");
      this.nodes.push(link(address, [`Picture: ${name || address}`]));
    } else {
      this.nodes.push(link(address, children.length ? children : [address]));
      for (let place = this.brackets.length - 1; place >= 0 && !this.brackets[place].dead; place -= 1) this.brackets[place].dead = true;
    }
    return target.end;
  }

  angleAddress(at) {
    const { text } = this;
    let end = at + 1;
    const last = Math.min(text.length, at + MAX_URL_LENGTH);
    while (end < last && text[end] > " " && text[end] !== "<" && text[end] !== ">") end += 1;
    const shown = text.slice(at + 1, end);
    const address = text[end] === ">" && (safeAddress(shown) ?? (/^[^@:/]+@[^@:/]+$/.test(shown) ? safeAddress(`mailto:${shown}`) : undefined));
    if (!address) { this.buffer += "<"; return at + 1; }
    this.add(link(address, [shown]));
    return end + 1;
  }

  bareAddress(at) {
    const { text } = this;
    const end = at && /\w/.test(text[at - 1]) ? at : bareAddressEnd(text, at);
    const address = safeAddress(text.slice(at, end));
    if (!address) { this.buffer += text[at]; return at + 1; }
    this.add(link(address, [text.slice(at, end)]));
    return end;
  }
}

// Nodes of a text.
export const inline = (text) => new InlineParser(text).parse();
