// The playground: asks up to four models in one of the formats, and keeps the conversation in the
// browser.

import { code } from "./code.js";
import { Column } from "./columns.js";
import { KeptDialog, ShareDialog } from "./kept.js";
import { MAX_COLUMNS, cleanConversation, cleanSettings, cleanShared, costOf, dollars, sharedOf } from "./record.js";
import { Settings } from "./settings.js";
import { isShared, unpack } from "./share.js";
import { BrowserStore, tabValue } from "./store.js";

const form = document.getElementById("play");
const field = (name) => form.elements.namedItem(name);
const byId = (id) => document.getElementById(id);
const settings = new Settings(form);
const TAB_KEY = `portunus-playground-${form.dataset.account}`;

// ---- Messages of the page ----

function tell(id, text) {
  byId(id).textContent = text;
  byId(id).hidden = !text;
}
const problem = (text) => tell("problem", text);
const notice = (text) => tell("notice", text);

// ---- Columns ----

const columns = [];
const frame = document.querySelector(".column");

// The current conversation: { id, title, named, created, revision, settings,
// columns: [{ model, turns }] }.
let conversation;
let running;
let store;

const page = {
  get store() { return store; },
  keyId: () => field("key").value,
  formatName: () => field("format").value,
  isRaw: () => byId("raw").checked,
  changed: (one, asked) => { keep(one, asked); if (one === conversation) showCost(); },
  answerTools: (column, turn) => go((wish, signal) => column.ask(turn, wish, signal, conversation)),
  currentId: () => conversation.id,
  shared: (withMessages) => sharedOf(conversation, settings.read(columns.map((column) => column.model)), withMessages),
  open: (id) => leave(() => openKept(id)),
  renamed(id, title) { if (id === conversation.id) Object.assign(conversation, { title, named: true, revision: conversation.revision + 1 }); },
  forgotten(id) { if (id === conversation.id) leave(start); },
  allForgotten: () => leave(start),
};

function addColumn(model) {
  const node = columns.length ? frame.cloneNode(true) : frame;
  const column = new Column(node, page);
  if (columns.length) {
    node.querySelector(".talk").replaceChildren();
    frame.parentElement.append(node);
  }
  columns.push(column);
  if (model !== undefined) column.picker.value = model;
  column.picker.addEventListener("change", () => {
    const place = columns.indexOf(column);
    conversation.columns[place].model = column.model;
    fit();
  });
  node.querySelector(".remove").addEventListener("click", () => removeColumn(column));
  number();
  return column;
}

function removeColumn(column) {
  if (running) return;
  const place = columns.indexOf(column);
  column.sizes.disconnect();
  column.node.remove();
  columns.splice(place, 1);
  conversation.columns.splice(place, 1);
  number();
  fit();
  if (conversation.revision) keep(conversation);
  showCost();
  columns[0].picker.focus();
}

// Numbers the columns. The first one stays.
function number() {
  for (const [place, { node, picker, log }] of columns.entries()) {
    const name = columns.length > 1 ? `Model ${place + 1}` : "Model";
    picker.id = `model-${place + 1}`;
    const label = node.querySelector("label");
    label.htmlFor = picker.id;
    label.textContent = name;
    node.querySelector("h2").textContent = `Conversation with ${name.toLowerCase()}`;
    log.setAttribute("aria-label", `${name}: conversation`);
    const remove = node.querySelector(".remove");
    remove.hidden = place === 0;
    remove.setAttribute("aria-label", `Remove ${name.toLowerCase()}`);
  }
  field("add-model").hidden = columns.length >= MAX_COLUMNS;
  document.querySelector("main").classList.toggle("wide", columns.length > 1);
  frame.parentElement.classList.toggle("many", columns.length > 2);
}

const fit = () => settings.fit(columns);

// Models that this gateway serves; the others cannot be chosen.
const serves = (model) => [...frame.querySelector("select").options].some((option) => option.value === model);

// Shows as many columns as there are models. Returns the models that are missing here.
function showColumns(models) {
  const missing = models.filter((model) => model && !serves(model));
  while (columns.length > Math.max(1, models.length)) {
    const last = columns.pop();
    last.sizes.disconnect();
    last.node.remove();
  }
  while (columns.length < models.length) addColumn();
  models.forEach((model, place) => { if (serves(model)) columns[place].picker.value = model; });
  number();
  return missing.map((model) => `the model "${model}"`);
}

// ---- The conversation ----

const fresh = () => ({
  id: crypto.randomUUID?.() ?? Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join(""),
  title: "", named: false, created: Date.now(), revision: 0, columns: [],
});

// Starts an empty conversation with the present settings.
function start() {
  conversation = fresh();
  conversation.columns = columns.map((column) => ({ model: column.model, turns: [] }));
  columns.forEach((column, place) => column.load(conversation.columns[place].turns));
  tabValue.write(TAB_KEY, undefined);
  tell("keeping", "");
  showCost();
}

// Shows a conversation with its settings. Returns what this gateway lacks.
function show(one, chosen) {
  conversation = one;
  const missing = [...showColumns(one.columns.map((column) => column.model)), ...settings.write(chosen, fit)];
  columns.forEach((column, place) => {
    one.columns[place].model = column.model;
    column.load(one.columns[place].turns);
  });
  tell("keeping", "");
  showCost();
  return missing;
}

const short = (text) => (text.length > 80 ? `${text.slice(0, 80)}…` : text);
const lacks = (missing) => (missing.length ? ` Not available here: ${missing.map(short).join(", ")}.` : "");

async function openKept(id, quiet = false) {
  try {
    const found = store && await store.read("conversations", id);
    if (!found && quiet) { tabValue.write(TAB_KEY, undefined); return; }
    if (!found) throw new Error("It is not there any more.");
    const one = cleanConversation(found);
    const missing = show(one, one.settings);
    tabValue.write(TAB_KEY, id);
    notice(lacks(missing).trim());
  } catch (error) {
    tabValue.write(TAB_KEY, undefined);
    if (!conversation) start();
    notice(`That conversation cannot be opened. ${error.message}`);
  }
}

async function openShared(fragment) {
  try {
    const shared = cleanShared(await unpack(fragment));
    const one = { ...fresh(), title: shared.title, columns: shared.columns };
    const missing = show(one, shared.settings);
    tabValue.write(TAB_KEY, undefined);
    if (one.columns.some(({ turns }) => turns.length)) keep(one);
    notice(`This is a copy of a shared conversation. Nothing is sent until you press Send. Check the system text and the tools first.${lacks(missing)}`);
  } catch (error) {
    if (!conversation) start();
    notice(`The shared link cannot be opened. ${error.message}`);
  }
}

// Ends a running answer before another conversation is shown.
async function leave(next) {
  running?.abort();
  await finished;
  notice("");
  problem("");
  await next();
}

function showCost() {
  const { nanos, answers, unpriced } = costOf(conversation.columns);
  const open = unpriced ? ` and ${unpriced} ${unpriced === 1 ? "answer" : "answers"} without a price` : "";
  tell("cost", answers ? `This conversation: ${dollars(nanos)}${open}` : "");
}

// ---- Keeping it in the browser ----

const KEEPS_NOTHING = "This browser keeps nothing for this site, for example in a private window. The conversation is lost when you leave the page.";
const writes = new WeakMap();

// Writes a conversation after the writes before it. Changes during a write lead to one more. `asked` is
// true for a new message.
function keep(one, asked = false) {
  if (one === conversation) one.settings = settings.read(columns.map((column) => column.model));
  if (!store) { if (one === conversation) tell("keeping", KEEPS_NOTHING); return; }
  const state = writes.get(one) ?? { busy: false, again: false, asked: false, dropped: false };
  writes.set(one, state);
  if (asked) Object.assign(state, { asked: true, dropped: false });
  if (state.dropped) return;
  if (state.busy) { state.again = true; return; }
  state.busy = true;
  state.again = false;
  write(one, state).finally(() => {
    state.busy = false;
    if (state.again) keep(one);
  });
}

async function write(one, state) {
  const { nanos } = costOf(one.columns);
  const models = [...new Set(one.columns.map((column) => column.model))];
  const title = one.title || one.columns.flatMap(({ turns }) => turns).find((turn) => turn.role === "user")?.text.slice(0, 80) || "";
  one.title = title;
  try {
    const outcome = await store.keep(one, { title, models, changed: Date.now(), nanos: nanos.toString() });
    if (outcome === "kept") {
      one.revision += 1;
      state.asked = false;
      if (one === conversation) tell("keeping", "");
    } else if (outcome === "deleted") {
      // A new message keeps it again; the rest of an old answer does not.
      Object.assign(one, { id: fresh().id, revision: 0 });
      state.again = state.asked;
      state.dropped = !state.asked;
      if (one === conversation && state.dropped) tell("keeping", "This conversation was deleted in another tab. The next message keeps it again.");
    } else {
      Object.assign(one, { id: fresh().id, revision: 0 });
      state.again = true;
      if (one === conversation) notice("Another tab went on with this conversation. What is here is kept as a copy.");
    }
    if (one === conversation && one.revision) tabValue.write(TAB_KEY, one.id);
  } catch (error) {
    const full = error.name === "QuotaExceededError" || /quota|full/i.test(error.message);
    const why = full ? "The browser's storage is full: delete kept conversations with pictures." : `The browser refused: ${error.message}.`;
    if (one === conversation) tell("keeping", `This conversation is not kept. ${why}`);
  }
}

// ---- Sending ----

let finished = Promise.resolve();

async function go(ask) {
  if (running) return;
  problem("");
  let wish;
  try { wish = settings.wishes(); } catch (error) { problem(error.message); return; }
  running = new AbortController();
  field("send").hidden = true;
  field("stop").hidden = false;
  const { signal } = running;
  finished = ask(wish, signal).catch((error) => problem(error.message)).finally(() => {
    running = undefined;
    const idle = [document.body, field("stop")].includes(document.activeElement);
    field("send").hidden = false;
    field("stop").hidden = true;
    if (idle && !document.querySelector("dialog[open]")) field("text").focus({ preventScroll: true });
  });
  await finished;
}

const base64 = (file) => new Promise((resolve, reject) => {
  const reader = new FileReader();
  reader.addEventListener("load", () => resolve(reader.result.slice(reader.result.indexOf(",") + 1)));
  reader.addEventListener("error", () => reject(new Error(`The file ${file.name} cannot be read.`)));
  reader.readAsDataURL(file);
});

const attached = () => Promise.all([...field("image").files].map(async (file) => ({ type: file.type, name: file.name, data: await base64(file) })));

function showFiles() {
  const names = [...field("image").files].map((file) => file.name);
  tell("files", names.length ? `Attached: ${names.join(", ")}` : "");
}

// An address that names a model starts a conversation; the kept one is opened at the next reload.
function forgetModelOfAddress() {
  const address = new URL(location.href);
  if (!address.searchParams.has("model")) return;
  address.searchParams.delete("model");
  history.replaceState(null, "", address);
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const text = field("text").value.trim();
  if (!text || running) return;
  await go(async (wish, signal) => {
    const images = await attached();
    field("text").value = "";
    field("image").value = "";
    showFiles();
    notice("");
    forgetModelOfAddress();
    const asked = conversation;
    asked.title ||= text.slice(0, 80);
    await Promise.all(columns.map((column) => column.ask({ role: "user", text, images }, wish, signal, asked)));
  });
});
field("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); form.requestSubmit(); }
});
field("image").addEventListener("change", showFiles);
field("stop").addEventListener("click", () => running?.abort());
field("new").addEventListener("click", () => leave(() => { start(); field("text").focus(); }));
field("add-model").addEventListener("click", () => {
  if (running || columns.length >= MAX_COLUMNS) return;
  const column = addColumn();
  // The next model that no column has.
  const free = [...column.picker.options].find((option) => option.dataset.kind === columns[0].kind && columns.every((other) => other === column || other.model !== option.value));
  column.picker.value = free?.value ?? columns[0].model;
  conversation.columns.push({ model: column.model, turns: [] });
  column.load(conversation.columns.at(-1).turns);
  fit();
  column.picker.focus();
});
field("format").addEventListener("change", fit);
// Changed settings belong to the conversation, but alone they start none.
form.addEventListener("change", () => { if (conversation.revision && !running) keep(conversation); });
byId("raw").addEventListener("change", () => { for (const column of columns) column.showRaw(byId("raw").checked); });

// ---- Dialogs ----

const kept = new KeptDialog(page);
field("show-kept").addEventListener("click", () => kept.show());
const share = new ShareDialog(page);
field("show-share").addEventListener("click", () => share.show());

const dialog = byId("as-code");
function showCode() {
  const [column] = columns;
  try {
    const wish = { ...settings.wishes(), picture: column.isImage };
    const turns = column.turns.some((turn) => !turn.skipped) ? column.turns.filter((turn) => !turn.skipped) : [{ role: "user", text: field("text").value || "Hello!", images: [] }];
    byId("code-text").textContent = code(field("language").value, { base: form.dataset.url, format: column.format, model: column.model, turns, wish });
  } catch (error) { byId("code-text").textContent = error.message; }
}
field("show-code").addEventListener("click", () => { showCode(); dialog.showModal(); });
field("language").addEventListener("change", showCode);
byId("close-code").addEventListener("click", () => dialog.close());

// ---- Presets ----

const presets = () => field("preset");

async function listPresets(chosen) {
  let names = [];
  try { names = store ? (await store.all("presets")).map((preset) => preset.name).filter((name) => typeof name === "string") : []; } catch { /* The list stays empty. */ }
  presets().replaceChildren(...names.map((name) => new Option(name, name)));
  if (!names.length) presets().append(new Option("No presets yet", ""));
  if (chosen !== undefined) presets().value = chosen;
  for (const name of ["load-preset", "delete-preset"]) field(name).disabled = !names.length;
}

async function withPresets(act) {
  if (!store) { tell("preset-status", "This browser keeps nothing for this site."); return; }
  try { await act(); } catch (error) { tell("preset-status", `The browser did not do that: ${error.message}`); }
}

async function savePreset() {
  const name = field("preset-name").value.trim();
  if (!name) { tell("preset-status", "A preset needs a name."); field("preset-name").focus(); return; }
  await withPresets(async () => {
    await store.savePreset({ name, settings: settings.read(columns.map((column) => column.model)) });
    await listPresets(name);
    field("preset-name").value = "";
    tell("preset-status", `Saved "${name}".`);
  });
}

field("save-preset").addEventListener("click", savePreset);
field("preset-name").addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); savePreset(); } });
field("load-preset").addEventListener("click", () => withPresets(async () => {
  if (running) return;
  const name = presets().value;
  const found = await store.read("presets", name);
  if (!found) { await listPresets(); tell("preset-status", "That preset is not there any more."); return; }
  const chosen = cleanSettings(found.settings);
  // Columns keep their conversation; further ones are empty.
  const missing = showColumns(chosen.models.length ? chosen.models : columns.map((column) => column.model));
  conversation.columns = columns.map((column, place) => ({ model: column.model, turns: conversation.columns[place]?.turns ?? [] }));
  columns.forEach((column, place) => { if (column.turns !== conversation.columns[place].turns) column.load(conversation.columns[place].turns); });
  missing.push(...settings.write(chosen, fit));
  showCost();
  tell("preset-status", `Loaded "${name}".${lacks(missing)}`);
}));
field("delete-preset").addEventListener("click", () => withPresets(async () => {
  const name = presets().value;
  await store.deletePreset(name);
  await listPresets();
  tell("preset-status", `Deleted "${name}".`);
}));

// ---- Begin ----

// Takes the shared conversation of the address, or the one with which this tab came to the sign-in page.
function takeShared() {
  const waiting = tabValue.read("portunus-shared");
  tabValue.write("portunus-shared", undefined);
  const fragment = isShared(location.hash) ? location.hash : waiting && isShared(waiting) ? waiting : undefined;
  if (isShared(location.hash)) history.replaceState(null, "", location.pathname + location.search);
  return fragment;
}

addEventListener("hashchange", () => {
  const fragment = takeShared();
  if (fragment) leave(() => openShared(fragment));
});

async function begin() {
  const id = tabValue.read(TAB_KEY);
  addColumn();
  start();
  fit();
  try { store = await BrowserStore.open(form.dataset.account); } catch { tell("keeping", KEEPS_NOTHING); }
  await listPresets();
  const shared = takeShared();
  if (shared) await openShared(shared);
  else if (id && !new URLSearchParams(location.search).has("model")) await openKept(id, true);
  form.dataset.ready = "true";
}
begin();
