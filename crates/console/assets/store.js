// Conversations and presets in the browser: one IndexedDB database per account, so that no account sees
// those of another. Nothing of it is sent to the server.

// Accounts whose database is deleted at sign-out. `console.js` reads the list.
const SIGN_OUT_KEY = "portunus-delete-at-sign-out";

const done = (request) => new Promise((resolve, reject) => {
  request.addEventListener("success", () => resolve(request.result));
  request.addEventListener("error", () => reject(request.error));
});
const finished = (transaction) => new Promise((resolve, reject) => {
  transaction.addEventListener("complete", () => resolve());
  transaction.addEventListener("abort", () => reject(transaction.error ?? new Error("The storage stopped.")));
});

export class BrowserStore {
  // Opens the database of an account. Fails if the browser keeps nothing for this site.
  static async open(account) {
    const name = `portunus-playground-${account}`;
    const request = indexedDB.open(name, 1);
    request.addEventListener("upgradeneeded", () => {
      for (const [store, keyPath] of [["conversations", "id"], ["summaries", "id"], ["presets", "name"]]) request.result.createObjectStore(store, { keyPath });
    });
    const opened = await Promise.race([
      done(request),
      new Promise((_, reject) => { setTimeout(() => reject(new Error("The storage does not answer.")), 5000); }),
    ]);
    return new BrowserStore(name, opened);
  }

  constructor(name, database) {
    this.name = name;
    this.database = database;
    // Another tab deletes the database at sign-out.
    database.addEventListener("versionchange", () => database.close());
  }

  async read(store, key) { return done(this.database.transaction(store).objectStore(store).get(key)); }

  async all(store) { return done(this.database.transaction(store).objectStore(store).getAll()); }

  async change(stores, act) {
    const transaction = this.database.transaction(stores, "readwrite");
    const ended = finished(transaction);
    // The rejection is handled below, after the changes.
    ended.catch(() => {});
    let result;
    try {
      result = await act((store) => transaction.objectStore(store));
    } catch (error) {
      try { transaction.abort(); } catch { /* It has ended already. */ }
      throw error;
    }
    await ended;
    return result;
  }

  // Writes a conversation and its summary. Returns "deleted" or "changed" and writes nothing if another
  // tab did so since this tab last wrote it.
  async keep(conversation, summary) {
    return this.change(["conversations", "summaries"], async (store) => {
      const known = await done(store("summaries").get(conversation.id));
      if (conversation.revision && !known) return "deleted";
      if ((known?.revision ?? 0) !== conversation.revision) return "changed";
      const revision = conversation.revision + 1;
      await done(store("conversations").put({ ...conversation, revision }));
      await done(store("summaries").put({ ...summary, id: conversation.id, revision }));
      return "kept";
    });
  }

  async rename(id, title) {
    await this.change(["conversations", "summaries"], async (store) => {
      for (const name of ["conversations", "summaries"]) {
        const record = await done(store(name).get(id));
        if (record) await done(store(name).put({ ...record, title, named: true, revision: record.revision + 1 }));
      }
    });
  }

  async forget(id) {
    await this.change(["conversations", "summaries"], async (store) => {
      for (const name of ["conversations", "summaries"]) await done(store(name).delete(id));
    });
  }

  async forgetAll() {
    await this.change(["conversations", "summaries"], async (store) => {
      for (const name of ["conversations", "summaries"]) await done(store(name).clear());
    });
  }

  async savePreset(preset) { await this.change(["presets"], (store) => done(store("presets").put(preset))); }

  async deletePreset(name) { await this.change(["presets"], (store) => done(store("presets").delete(name))); }

  get leavesAtSignOut() { return signOutList().includes(this.name); }

  set leavesAtSignOut(yes) {
    const others = signOutList().filter((name) => name !== this.name);
    localStorage.setItem(SIGN_OUT_KEY, JSON.stringify(yes ? [...others, this.name] : others));
  }
}

function signOutList() {
  try {
    const list = JSON.parse(localStorage.getItem(SIGN_OUT_KEY));
    return Array.isArray(list) ? list.filter((name) => typeof name === "string") : [];
  } catch { return []; }
}

// Value of this tab that survives a reload, or undefined.
export const tabValue = {
  read(name) { try { return sessionStorage.getItem(name) ?? undefined; } catch { return undefined; } },
  write(name, value) {
    try { if (value === undefined) sessionStorage.removeItem(name); else sessionStorage.setItem(name, value); } catch { /* A reload then starts a new conversation. */ }
  },
};
