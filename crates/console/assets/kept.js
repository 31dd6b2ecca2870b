// The dialogs of the playground: kept conversations, and the link that shares one.

import { button, copyText, element } from "./dom.js";
import { dollars } from "./record.js";
import { MAX_LINK_LENGTH, pack } from "./share.js";

// A time in the zone of the page, which an old browser may not know.
const when = (time) => {
  const form = { dateStyle: "medium", timeStyle: "short" };
  const timeZone = document.getElementById("play")?.dataset.zone;
  try { return new Date(time).toLocaleString([], { ...form, timeZone }); }
  catch { return new Date(time).toLocaleString([], form); }
};

// A button that acts at the second press.
function twice(label, sure, action) {
  let timer;
  const node = button("copy danger", label, () => {
    if (!timer) {
      node.textContent = sure;
      timer = setTimeout(() => { timer = undefined; node.textContent = label; }, 4000);
      return;
    }
    clearTimeout(timer);
    timer = undefined;
    node.textContent = label;
    action();
  });
  return node;
}

const cost = (nanos) => (/^-?[0-9]{1,18}$/.test(nanos) ? dollars(BigInt(nanos)) : "");

// The list of kept conversations. `page` has: store, currentId(), open(id), renamed(id, title),
// forgotten(id) and allForgotten().
export class KeptDialog {
  constructor(page) {
    this.page = page;
    this.node = document.getElementById("kept");
    this.list = document.getElementById("kept-list");
    this.problem = document.getElementById("kept-problem");
    this.signOut = document.getElementById("delete-at-sign-out");
    this.all = twice("Delete all", "Really delete all?", () => this.act(async () => {
      await page.store.forgetAll();
      page.allForgotten();
    }));
    document.getElementById("kept-actions").prepend(this.all);
    document.getElementById("close-kept").addEventListener("click", () => this.node.close());
    this.signOut.addEventListener("change", () => this.act(async () => { page.store.leavesAtSignOut = this.signOut.checked; }));
  }

  async act(change) {
    this.problem.hidden = true;
    try { await change(); } catch (error) {
      this.problem.textContent = `The browser did not do that: ${error.message}`;
      this.problem.hidden = false;
    }
    await this.fill();
  }

  async show() {
    this.problem.hidden = true;
    await this.fill();
    if (!this.node.open) this.node.showModal();
  }

  async fill() {
    const { store } = this.page;
    let rows = [];
    try {
      rows = store ? (await store.all("summaries")).filter((row) => typeof row.id === "string") : [];
      this.signOut.checked = Boolean(store?.leavesAtSignOut);
    } catch (error) {
      this.problem.textContent = `The kept conversations cannot be read: ${error.message}`;
      this.problem.hidden = false;
    }
    rows.sort((a, b) => (Number(b.changed) || 0) - (Number(a.changed) || 0));
    this.all.hidden = !rows.length;
    this.signOut.closest("label").hidden = !store;
    if (!rows.length) {
      const why = store ? "They appear here after the first question, and stay in this browser." : "This browser keeps nothing for this site.";
      this.list.replaceChildren(element("li", "none", element("strong", "", "No conversations yet"), element("span", "muted", why)));
      return;
    }
    this.list.replaceChildren(...rows.map((row) => this.row(row)));
  }

  row(row) {
    const title = String(row.title || "Without a title");
    const models = Array.isArray(row.models) ? row.models.join(", ") : "";
    const open = button("link", title, async () => { this.node.close(); await this.page.open(row.id); });
    const facts = element("span", "muted small", [when(Number(row.changed) || 0), models, cost(row.nanos)].filter(Boolean).join(" · "));
    const rename = button("copy", "Rename", () => this.rename(node, row, title));
    const remove = twice("Delete", "Really delete?", () => this.act(async () => {
      await this.page.store.forget(row.id);
      this.page.forgotten(row.id);
    }));
    rename.setAttribute("aria-label", `Rename ${title}`);
    const node = element("li", row.id === this.page.currentId() ? "current" : "", element("div", "", open, facts), element("div", "inline-copy", rename, remove));
    return node;
  }

  rename(node, row, title) {
    const input = element("input");
    input.value = title;
    input.maxLength = 200;
    input.setAttribute("aria-label", "Title of the conversation");
    const save = () => this.act(async () => {
      const fresh = input.value.trim();
      if (!fresh) return;
      await this.page.store.rename(row.id, fresh);
      this.page.renamed(row.id, fresh);
    });
    input.addEventListener("keydown", (event) => {
      if (event.key === "Enter") { event.preventDefault(); save(); }
      if (event.key === "Escape") { event.preventDefault(); this.fill(); }
    });
    node.replaceChildren(input, button("copy", "Save", save), button("copy", "Cancel", () => this.fill()));
    input.select();
  }
}

// The dialog with a link. `page.shared(withMessages)` makes what the link carries.
export class ShareDialog {
  constructor(page) {
    this.page = page;
    this.node = document.getElementById("share");
    this.link = document.getElementById("share-link");
    this.problem = document.getElementById("share-problem");
    this.messages = document.getElementById("share-messages");
    this.copy = document.getElementById("copy-link");
    this.messages.addEventListener("change", () => this.fill());
    document.getElementById("close-share").addEventListener("click", () => this.node.close());
    this.copy.addEventListener("click", async () => {
      const done = await copyText(this.link);
      this.copy.textContent = done ? "Copied" : "Selected";
      setTimeout(() => { this.copy.textContent = "Copy the link"; }, 1600);
    });
  }

  async show() {
    await this.fill();
    this.node.showModal();
  }

  async fill() {
    let problem = "";
    let address = "";
    try {
      const fragment = await pack(this.page.shared(this.messages.checked));
      const { origin, pathname } = location;
      address = `${origin}${pathname}${fragment}`;
      if (address.length > MAX_LINK_LENGTH) {
        problem = `The link would have ${address.length.toLocaleString("en")} characters. Chat programs and mail cut links with more than ${MAX_LINK_LENGTH.toLocaleString("en")}. ${this.messages.checked ? "Share the settings only, or a shorter conversation." : "Shorten the system text, the tools or the schema."}`;
        address = "";
      }
    } catch (error) { problem = error.message; }
    this.link.textContent = address;
    this.link.parentElement.hidden = !address;
    this.copy.hidden = !address;
    this.problem.textContent = problem;
    this.problem.hidden = !problem;
  }
}
