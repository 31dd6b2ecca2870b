// Markdown of answers as DOM nodes.
//
// Own code, because the page needs little of Markdown and nothing of HTML: a few hundred lines without
// an HTML parser, under a policy that allows no inline script. Nodes are made with `createElement` and
// text nodes only, so tags in an answer stay text. Nothing is fetched: a picture becomes a link.
// The time is linear in the length of the text: nesting is bounded, and every scan moves forward.
// The syntax is that of CommonMark with the tables, task lists and strikethrough of GitHub
// (https://spec.commonmark.org/0.31.2/, https://github.github.com/gfm/), without reference links,
// indented code and HTML.

import { copyText, element } from "./dom.js";
import { inline } from "./markdown-inline.js";

const MAX_DEPTH = 12;
const MAX_COLUMNS = 100;
const FRAME_MS = 16;
// Blocks that make the pause between two renderings a millisecond longer.
const BLOCKS_PER_MS = 40;
// Number of blocks above which those out of view are not laid out.
const LONG_TEXT = 200;

// ---- Blocks ----

const indentOf = (line) => { let at = 0; while (line[at] === " ") at += 1; return at; };
const isBlank = (line) => line.trim() === "";

function expandTabs(line) {
  let at = 0;
  let column = 0;
  for (; line[at] === " " || line[at] === "\t"; at += 1) column += line[at] === " " ? 1 : 4 - (column % 4);
  return line.lastIndexOf("\t", at) < 0 ? line : " ".repeat(column) + line.slice(at);
}

function isRule(line) {
  const char = line.trimStart()[0];
  if (char === undefined || !"*-_".includes(char)) return false;
  let count = 0;
  for (const c of line) {
    if (c === char) count += 1;
    else if (c !== " ") return false;
  }
  return count >= 3;
}

function fenceOf(line) {
  const indent = indentOf(line);
  const char = line[indent];
  if (char !== "`" && char !== "~") return undefined;
  let at = indent;
  while (line[at] === char) at += 1;
  const info = line.slice(at).trim();
  if (at - indent < 3 || (char === "`" && info.includes("`"))) return undefined;
  return { char, length: at - indent, indent, info };
}

function headingOf(line) {
  const text = line.trimStart();
  let level = 0;
  while (text[level] === "#") level += 1;
  if (level < 1 || level > 6 || (text.length > level && text[level] !== " ")) return undefined;
  let words = text.slice(level).trim();
  let end = words.length;
  while (words[end - 1] === "#") end -= 1;
  if (end < words.length && (end === 0 || words[end - 1] === " ")) words = words.slice(0, end).trim();
  return { level, words };
}

// Marker of a list item: { kind, start, indent, width }. `width` is the indent of its content.
function markerOf(line) {
  const indent = indentOf(line);
  let at = indent;
  while (at - indent < 9 && line[at] >= "0" && line[at] <= "9") at += 1;
  const digits = line.slice(indent, at);
  const kind = line[at];
  if (kind === undefined || !(digits ? ".)" : "-+*").includes(kind)) return undefined;
  const after = line.slice(at + 1);
  if (after && after[0] !== " ") return undefined;
  const gap = indentOf(after);
  return { kind, ordered: digits !== "", start: Number(digits), indent, width: at + 1 + (gap < 1 || gap > 4 || isBlank(after) ? 1 : gap), empty: isBlank(after) };
}

const isQuote = (line) => line.trimStart()[0] === ">";

// Alignments of the row below the head of a table.
function alignments(line) {
  if (!line.includes("-")) return undefined;
  const cells = cellsOf(line);
  const found = cells.map((cell) => {
    const inner = cell.slice(cell.startsWith(":") ? 1 : 0, cell.endsWith(":") ? -1 : undefined);
    if (!inner || inner.replaceAll("-", "")) return undefined;
    return cell.endsWith(":") ? (cell.startsWith(":") ? "middle" : "end") : "begin";
  });
  return found.every(Boolean) ? found : undefined;
}

function cellsOf(line) {
  const text = line.trim();
  const cells = [];
  let cell = "";
  for (let at = text[0] === "|" ? 1 : 0; at < text.length && cells.length < MAX_COLUMNS; at += 1) {
    if (text[at] === "\\" && text[at + 1] === "|") { cell += "|"; at += 1; }
    else if (text[at] === "|") { cells.push(cell.trim()); cell = ""; }
    else cell += text[at];
  }
  if (cell.trim()) cells.push(cell.trim());
  return cells;
}

const startsTable = (line, next) => {
  if (!line.includes("|") || next === undefined) return undefined;
  const sides = alignments(next);
  return sides && sides.length === cellsOf(line).length ? sides : undefined;
};

const interrupts = (line) => {
  const marker = markerOf(line);
  return isBlank(line) || isQuote(line) || isRule(line) || fenceOf(line) || headingOf(line)
    || (marker && !marker.empty && (!marker.ordered || marker.start === 1));
};

class BlockParser {
  // `outline` holds the levels of the headings that are open, so that no level of the page is skipped.
  constructor(lines, depth, outline) {
    this.lines = lines;
    this.depth = depth;
    this.outline = outline;
    this.at = 0;
    // True if a blank line stands between two blocks.
    this.loose = false;
  }

  // Nodes of the next block.
  next() {
    const { lines } = this;
    const line = lines[this.at];
    if (isBlank(line)) { this.at += 1; return []; }
    const fence = fenceOf(line);
    if (fence) return [this.fence(fence)];
    if (isRule(line)) { this.at += 1; return [element("hr")]; }
    const heading = headingOf(line);
    if (heading) { this.at += 1; return this.heading(heading); }
    if (this.depth < MAX_DEPTH) {
      if (isQuote(line)) return [this.quote()];
      const marker = markerOf(line);
      if (marker) return [this.list(marker)];
    }
    const sides = startsTable(line, lines[this.at + 1]);
    if (sides) return [this.table(sides)];
    return this.paragraph();
  }

  all() {
    const nodes = [];
    let blank = false;
    while (this.at < this.lines.length) {
      const fresh = this.next();
      if (fresh.length && nodes.length && blank) this.loose = true;
      blank = !fresh.length;
      for (const node of fresh) nodes.push(node);
    }
    return nodes;
  }

  heading({ level, words }) {
    if (!words) return [];
    while (this.outline.length && this.outline.at(-1) >= level) this.outline.pop();
    const tag = `h${Math.min(3 + this.outline.length, 6)}`;
    this.outline.push(level);
    return [element(tag, `level-${level}`, inline(words))];
  }

  fence({ char, length, indent, info }) {
    const code = [];
    for (this.at += 1; this.at < this.lines.length; this.at += 1) {
      const line = this.lines[this.at];
      const close = fenceOf(line);
      if (close && close.char === char && close.length >= length && !close.info) { this.at += 1; break; }
      code.push(line.slice(Math.min(indent, indentOf(line))));
    }
    const language = info.split(" ")[0];
    const copy = element("button", "copy", "Copy");
    copy.type = "button";
    copy.setAttribute("aria-label", `Copy the ${language || "code"}`);
    const text = element("pre", "", element("code", "", code.join("\n")));
    text.tabIndex = 0;
    return element("div", "fence", element("div", "strip", element("span", "", language || "text"), copy), text);
  }

  quote() {
    const inner = [];
    for (; this.at < this.lines.length && isQuote(this.lines[this.at]); this.at += 1) {
      const text = this.lines[this.at].trimStart().slice(1);
      inner.push(expandTabs(text[0] === " " ? text.slice(1) : text));
    }
    return element("blockquote", "", new BlockParser(inner, this.depth + 1, this.outline).all());
  }

  list(first) {
    const items = [];
    let loose = false;
    for (let marker = first; marker && marker.kind === first.kind && marker.indent < first.indent + 2; ) {
      const inner = [this.lines[this.at].slice(marker.width)];
      let blanks = 0;
      for (this.at += 1; this.at < this.lines.length; this.at += 1) {
        const line = this.lines[this.at];
        if (isBlank(line)) { blanks += 1; continue; }
        const indent = indentOf(line);
        const belongs = indent >= Math.min(marker.width, marker.indent + 2) || (!blanks && !interrupts(line) && !markerOf(line) && !isBlank(inner.at(-1)));
        if (!belongs) break;
        for (; blanks; blanks -= 1) inner.push("");
        inner.push(line.slice(Math.min(indent, marker.width)));
      }
      items.push(this.item(inner));
      const line = this.lines[this.at];
      marker = line === undefined || isRule(line) ? undefined : markerOf(line);
      if (marker && blanks && marker.kind === first.kind) loose = true;
    }
    const list = element(first.ordered ? "ol" : "ul");
    if (first.ordered && first.start !== 1) list.start = first.start;
    loose ||= items.some((item) => item.loose);
    for (const { node, children } of items) {
      for (const child of children) {
        if (child.localName === "p" && !loose) while (child.firstChild) node.append(child.firstChild);
        else node.append(child);
      }
      list.append(node);
    }
    return list;
  }

  item(inner) {
    const task = /^\[([ xX])\] /.exec(inner[0]);
    const node = element("li", task ? "task" : "");
    if (task) {
      inner[0] = inner[0].slice(4);
      const sign = element("span", "sign", task[1] === " " ? "☐" : "☑");
      sign.setAttribute("role", "img");
      sign.setAttribute("aria-label", task[1] === " " ? "Not done:" : "Done:");
      node.append(sign, " ");
    }
    const parser = new BlockParser(inner, this.depth + 1, this.outline);
    const children = parser.all();
    return { node, children, loose: parser.loose };
  }

  table(sides) {
    const row = (line, tag) => element("tr", "", cellsOf(line).slice(0, sides.length).map((cell, place) => element(tag, sides[place], inline(cell))));
    const head = element("thead", "", row(this.lines[this.at], "th"));
    const body = element("tbody");
    for (this.at += 2; this.at < this.lines.length && !interrupts(this.lines[this.at]); this.at += 1) body.append(row(this.lines[this.at], "td"));
    const frame = element("div", "scroll", element("table", "", head, body));
    frame.tabIndex = 0;
    frame.setAttribute("role", "group");
    frame.setAttribute("aria-label", "Table");
    return frame;
  }

  paragraph() {
    const { lines } = this;
    const begin = this.at;
    for (this.at += 1; this.at < lines.length; this.at += 1) {
      const line = lines[this.at];
      const under = line.trim();
      const level = /^=+$/.test(under) ? 1 : /^-+$/.test(under) ? 2 : 0;
      if (level && under.length > 2) {
        const words = lines.slice(begin, this.at).map((part) => part.trim()).join(" ");
        this.at += 1;
        return this.heading({ level, words });
      }
      if (interrupts(line) || startsTable(line, lines[this.at + 1])) break;
    }
    const text = lines.slice(begin, this.at).map((line) => line.trimStart()).join("\n").trimEnd();
    return [element("p", "", inline(text))];
  }
}

// ---- A text that grows ----

const sameElement = (a, b) => a.nodeType === b.nodeType && a.localName === b.localName;

// Changes a node into another one of the same kind, so that focus, selection and scrolling stay.
function change(old, fresh) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  replace(old, [...fresh.childNodes], 0);
}

// Replaces the children of a node from a place on.
function replace(parent, fresh, from) {
  let old = parent.childNodes[from] ?? null;
  for (const node of fresh) {
    const next = old?.nextSibling ?? null;
    if (old && sameElement(old, node)) change(old, node);
    else if (old) parent.replaceChild(node, old);
    else parent.append(node);
    old = next;
  }
  while (old) { const next = old.nextSibling; old.remove(); old = next; }
}

const linesOf = (text) => text.replaceAll("\r\n", "\n").split("\n").map(expandTabs);

// Shows a text in a node. While the text grows, only its last two blocks are rendered again, at most
// once per frame, and at most for a fifth of the time.
export class MarkdownView {
  constructor(node) {
    this.node = node;
    this.text = "";
    // Length, nodes and outline of the blocks that no longer change.
    this.settled = { length: 0, nodes: 0, outline: [] };
    this.free = 0;
  }

  append(text) {
    this.text += text;
    if (this.waiting) return;
    // A timer, because hidden pages have no frames. The layout of a long text takes time as well.
    const pause = FRAME_MS + this.node.childElementCount / BLOCKS_PER_MS;
    this.waiting = setTimeout(() => this.render(), Math.max(pause, this.free - performance.now()));
  }

  // Renders at once what is still waiting.
  finish() { if (this.waiting || !this.node.hasChildNodes()) this.render(); }

  render() {
    clearTimeout(this.waiting);
    this.waiting = undefined;
    const begin = performance.now();
    const source = this.text.slice(this.settled.length);
    // The last line may be half a line break.
    const lines = linesOf(source.endsWith("\r") ? source.slice(0, -1) : source);
    const parser = new BlockParser(lines, 0, [...this.settled.outline]);
    const nodes = [];
    const starts = [];
    while (parser.at < lines.length) {
      const start = { line: parser.at, nodes: nodes.length, outline: [...parser.outline] };
      for (const node of parser.next()) nodes.push(node);
      if (nodes.length > start.nodes) starts.push(start);
    }
    replace(this.node, nodes, this.settled.nodes);
    this.node.classList.toggle("long", this.node.childElementCount > LONG_TEXT);
    const keep = starts.at(-2);
    if (keep?.line) {
      let length = this.settled.length;
      for (let line = 0; line < keep.line; line += 1) length = this.text.indexOf("\n", length) + 1;
      this.settled = { length, nodes: this.settled.nodes + keep.nodes, outline: keep.outline };
    }
    const now = performance.now();
    this.free = now + 4 * (now - begin);
  }
}

// Shows a finished text in a node.
export function showMarkdown(node, text) {
  const view = new MarkdownView(node);
  view.text = text;
  view.render();
  return view;
}

// Serves the copy buttons of code blocks in a node.
export function serveCopyButtons(node) {
  node.addEventListener("click", async (event) => {
    const button = event.target.closest?.(".fence .copy");
    if (!button) return;
    const done = await copyText(button.closest(".fence").querySelector("code"));
    button.textContent = done ? "Copied" : "Selected";
    setTimeout(() => { button.textContent = "Copy"; }, 1600);
  });
}
