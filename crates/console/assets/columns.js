// A column of the playground: a model, its conversation, and the calls to it.

import { button, element } from "./dom.js";
import { bodyOf, dataUrl, events, faultOf, formats, kindOf } from "./formats.js";
import { MarkdownView, serveCopyButtons } from "./markdown.js";
import { dollars, nanosOf } from "./record.js";

// Time between two copies of an unfinished answer into the browser's storage.
const KEEP_INTERVAL_MS = 2000;
const RECEIPT_DELAYS_MS = [0, 150, 250, 400, 800, 1500, 3000];

// ---- Texts and pictures ----

// A text that grows, shown as Markdown or as it is.
class TextView {
  constructor(node, text, raw) {
    this.node = node;
    this.text = text;
    this.raw = raw;
    serveCopyButtons(node);
    this.show();
  }

  show() {
    this.node.replaceChildren();
    this.node.classList.toggle("raw", this.raw);
    this.markdown = undefined;
    if (this.raw) { this.node.textContent = this.text; return; }
    this.markdown = new MarkdownView(this.node);
    this.markdown.text = this.text;
    if (this.text) this.markdown.render();
  }

  append(text) {
    this.text += text;
    if (this.markdown) this.markdown.append(text);
    else this.node.append(text);
  }

  finish() { if (this.markdown && this.text) this.markdown.finish(); }

  showRaw(raw) {
    if (raw === this.raw) return;
    this.raw = raw;
    this.show();
  }
}

// A picture in full, with a link to save it. A picture at another site is a link only, because the
// page's policy loads nothing from there.
function picture(url, description, name) {
  const inline = /^data:image\/[\w.+-]+[;,]/.test(url);
  const address = inline ? undefined : URL.parse?.(url, location.href) ?? new URL(url, location.href);
  if (address && !/^https?:$/.test(address.protocol)) return element("p", "muted small", "A picture with an address that cannot be shown.");
  const save = element("a", "", inline || address.origin === location.origin ? "Download the picture" : `Open the picture at ${address.host}`);
  save.href = inline ? url : address.href;
  if (!inline && address.origin !== location.origin) {
    save.target = "_blank";
    save.rel = "noopener noreferrer nofollow";
    return element("p", "small", save);
  }
  save.download = name || `picture.${/^data:image\/(\w+)/.exec(url)?.[1] ?? "png"}`;
  const image = element("img");
  image.src = save.href;
  image.alt = description;
  return element("figure", "picture", image, element("figcaption", "small", save));
}

function safePicture(url, description, name) {
  try { return picture(url, description, name); } catch { return element("p", "muted small", "A picture with an address that cannot be shown."); }
}

// A message of the user, as it was written.
function bubble(turn) {
  const node = element("div", `turn ${turn.role}`);
  const text = turn.role === "tool" ? turn.results.map((r) => `${r.name}: ${r.text}`).join("\n") : turn.text;
  node.append(element("p", "said", text));
  for (const file of turn.images ?? []) {
    if (kindOf(file) === "image") { node.append(safePicture(dataUrl(file), `Attached picture ${file.name}`, file.name)); continue; }
    const save = element("a", "small", file.name || "Attached file");
    save.href = dataUrl(file);
    save.download = file.name || "file";
    node.append(save);
  }
  return node;
}

// ---- An answer ----

class AnswerView {
  constructor(turn, asked, raw) {
    this.turn = turn;
    this.asked = asked.slice(0, 120);
    this.node = element("div", "turn assistant");
    this.details = element("details", "thinking", element("summary", "", "Thinking"));
    this.thinking = new TextView(element("div", "text"), turn.thinking ?? "", raw);
    this.said = new TextView(element("div", "said text"), turn.text, raw);
    this.pictures = element("div", "pictures");
    this.facts = element("p", "facts muted small", "…");
    this.details.append(this.thinking.node);
    this.node.append(this.details, this.said.node, this.pictures, this.facts);
    for (const url of turn.pictures ?? []) this.addPicture(url);
    if (turn.objection) this.fail(turn.objection);
    this.details.hidden = !turn.thinking;
    this.showFacts();
  }

  say(text) { this.turn.text += text; this.said.append(text); }

  think(text) {
    this.turn.thinking += text;
    this.details.hidden = false;
    this.thinking.append(text);
  }

  addPicture(url) {
    const count = this.pictures.childElementCount;
    this.pictures.append(safePicture(url, `Picture ${count + 1} made by ${this.turn.model || "the model"}${this.asked && ` for: ${this.asked}`}`));
  }

  fail(text) {
    this.turn.objection = text;
    this.node.classList.add("failed");
    this.node.insertBefore(element("p", "objection", text), this.facts);
  }

  showFacts() {
    this.facts.textContent = [this.turn.model, this.turn.facts, this.turn.priced].filter(Boolean).join(" · ") || "…";
  }

  finish() {
    this.said.finish();
    this.thinking.finish();
  }

  showRaw(raw) {
    this.said.showRaw(raw);
    this.thinking.showRaw(raw);
  }
}

// ---- A column ----

export class Column {
  // `page` has: keyId(), formatName(), isRaw(), changed(conversation, asked) and
  // answerTools(column, turn).
  constructor(node, page) {
    this.node = node;
    this.page = page;
    this.log = node.querySelector(".talk");
    this.picker = node.querySelector("select");
    this.turns = [];
    this.answers = [];
    // True while the end of the conversation is in view, and so kept in view.
    this.atEnd = true;
    this.log.addEventListener("scroll", () => { this.atEnd = this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < 48; });
    this.sizes = new ResizeObserver(() => this.follow());
  }

  get model() { return this.picker.value; }
  get kind() { return this.picker.selectedOptions[0]?.dataset.kind; }
  get isImage() { return this.kind === "image"; }
  get talks() { return this.kind === "chat"; }
  // The record of the model; an absent value is unknown.
  get record() { return JSON.parse(this.picker.selectedOptions[0]?.dataset.capabilities ?? "{}"); }
  get format() {
    if (this.kind === "embedding") return "embeddings";
    return this.isImage && this.page.formatName() !== "native" ? "images" : this.page.formatName();
  }

  follow() { if (this.atEnd) this.log.scrollTop = this.log.scrollHeight; }

  add(node) {
    this.log.append(node);
    this.sizes.observe(node);
    this.follow();
    return node;
  }

  // Shows a conversation.
  load(turns) {
    this.turns = turns;
    this.answers = [];
    this.sizes.disconnect();
    this.log.replaceChildren();
    this.atEnd = true;
    let asked = "";
    for (const turn of turns) {
      if (turn.role === "user") asked = turn.text;
      if (turn.role === "assistant") this.addAnswer(turn, asked);
      else this.add(bubble(turn));
    }
    const last = turns.at(-1);
    if (last?.role === "assistant" && last.calls?.length && !last.skipped) this.askForResults(last.calls);
  }

  addAnswer(turn, asked) {
    const view = new AnswerView(turn, asked, this.page.isRaw());
    this.answers.push(view);
    this.add(view.node);
    return view;
  }

  showRaw(raw) { for (const view of this.answers) view.showRaw(raw); }

  async ask(turn, wish, signal, conversation) {
    this.log.querySelector(".turn.calls")?.remove();
    this.turns.push(turn);
    this.atEnd = true;
    this.add(bubble(turn));
    await this.run(wish, signal, conversation);
  }

  async run(wish, signal, conversation) {
    const { turns, model, format: name } = this;
    const format = formats[name];
    const question = turns.at(-1);
    const wholeWish = { ...wish, picture: this.isImage };
    const body = JSON.stringify(bodyOf(name, model, turns, wholeWish));
    // The key may be changed while the answer comes.
    const key = this.page.keyId();
    const turn = { role: "assistant", model, format: name, raw: undefined, text: "", thinking: "", pictures: [], calls: [], unfinished: true };
    turns.push(turn);
    const view = this.addAnswer(turn, question.text ?? "");
    this.log.setAttribute("aria-busy", "true");
    const began = performance.now();
    let first, ended, failed;
    let calls = [];
    let keptAt = began;
    const show = {
      say: (text) => { if (text) { first ??= performance.now(); view.say(text); } },
      think: (text) => { if (text) { first ??= performance.now(); view.think(text); } },
      image: (url) => {
        if (!url) return;
        first ??= performance.now();
        turn.pictures.push(url);
        view.addPicture(url);
      },
      end: (why) => { ended = why; },
    };
    const fail = (text) => { failed = true; view.fail(text); };
    let raw = format.start();
    let id = "";
    let refused = false;
    this.page.changed(conversation, true);
    try {
      const response = await fetch("/console/playground/call" + format.path(model, wish.stream), {
        method: "POST", signal, credentials: "same-origin",
        headers: { "content-type": "application/json", "x-playground-key": key, ...format.headers },
        body,
      });
      id = response.headers.get("x-request-id") ?? "";
      refused = !response.ok;
      if (response.redirected) throw new Error("you are signed out. Sign in again in another tab.");
      for await (const event of events(response)) {
        const fault = faultOf(event);
        if (fault) { fail(fault); break; }
        raw = format.read(event, raw, show);
        if (performance.now() - keptAt > KEEP_INTERVAL_MS) { keptAt = performance.now(); this.page.changed(conversation); }
      }
      calls = format.calls(raw);
      if (!failed && !ended && !turn.text && !turn.pictures.length && !calls.length) fail(response.ok ? "The answer is empty." : `The gateway answered with status ${response.status}.`);
    } catch (error) {
      fail(signal.aborted ? "Stopped." : `The answer broke off: ${error.message}`);
    }
    view.finish();
    this.log.removeAttribute("aria-busy");
    delete turn.unfinished;
    // A reply that broke off has no complete form, so its text alone is sent on.
    if (!failed) Object.assign(turn, { raw, calls });
    if (!turn.text && !turn.calls.length && !turn.pictures.length) { turn.skipped = true; question.skipped = true; }
    const times = [first && `first token ${Math.round(first - began)} ms`, `${Math.round(performance.now() - began)} ms in all`, ended];
    turn.facts = times.filter(Boolean).join(" · ");
    view.showFacts();
    turn.called = Boolean(id) && !refused;
    if (turn.calls.length && this.turns === turns) this.askForResults(turn.calls);
    this.page.changed(conversation);
    if (turn.called) this.receipt(id, key, view, conversation);
  }

  // Adds the price to an answer. The receipt exists a moment after the last byte.
  async receipt(id, key, view, conversation) {
    const { turn } = view;
    for (const delay of RECEIPT_DELAYS_MS) {
      await new Promise((go) => { setTimeout(go, delay); });
      try {
        const got = await fetch(`/console/playground/call/v1/usage/${encodeURIComponent(id)}`, { headers: { "x-playground-key": key } });
        if (!got.ok) continue;
        const entry = await got.json();
        const nanos = nanosOf(entry.cost_usd);
        turn.nanos = nanos?.toString();
        turn.priced = `${entry.input_tokens} in, ${entry.output_tokens} out${entry.estimated ? " (estimated)" : ""} · ${nanos === undefined ? `$${entry.cost_usd}` : dollars(nanos)}`;
        if (entry.losses?.length) turn.priced += ` · not carried: ${entry.losses.join(", ")}`;
        break;
      } catch { /* The next attempt may succeed. */ }
    }
    turn.priced ??= "price not known";
    view.showFacts();
    this.page.changed(conversation);
  }

  // Tools run at the caller, so the user enters their results.
  askForResults(calls) {
    const box = this.add(element("div", "turn calls"));
    const inputs = calls.map((call) => {
      const label = element("label", "", `${call.name}(${call.args})`);
      const input = element("input");
      input.placeholder = "What the tool answers";
      label.append(input);
      box.append(label);
      return input;
    });
    box.append(button("button", "Send results", () => {
      const results = calls.map((call, place) => ({ id: call.id, name: call.name, text: inputs[place].value || "done" }));
      this.page.answerTools(this, { role: "tool", results });
    }));
  }
}
