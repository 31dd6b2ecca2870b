// Enhancements. Every page works without them, except passkeys, which need a script.
"use strict";

// Tells the time zone of the browser. Pages show times in it from the next one on.
const timeZone = Intl.DateTimeFormat().resolvedOptions().timeZone;
if (timeZone) {
  const secure = location.protocol === "https:" ? "; secure" : "";
  document.cookie = `portunus_zone=${timeZone}; path=/console; max-age=34560000; samesite=lax${secure}`;
}

// Copy buttons are hidden without a script.
for (const button of document.querySelectorAll("button[data-copy]")) {
  const source = document.getElementById(button.dataset.copy);
  if (!source) continue;
  const label = button.textContent;
  button.hidden = false;
  button.addEventListener("click", async () => {
    let done = false;
    try {
      // `navigator.clipboard` exists only in secure contexts.
      await navigator.clipboard.writeText(source.textContent);
      done = true;
    } catch {
      const range = document.createRange();
      range.selectNodeContents(source);
      const selection = getSelection();
      selection.removeAllRanges();
      selection.addRange(range);
      done = document.execCommand("copy");
    }
    button.textContent = done ? "Copied" : "Selected";
    setTimeout(() => { button.textContent = label; }, 1600);
  });
}

for (const button of document.querySelectorAll("button[data-print]")) {
  button.hidden = false;
  button.addEventListener("click", () => print());
}

// A link to a folded entry unfolds it.
const unfold = () => {
  const entry = document.getElementById(location.hash.slice(1));
  if (entry?.matches("details")) entry.open = true;
};
addEventListener("hashchange", unfold);
unfold();

// A shared conversation waits in the tab until its reader is signed in.
if (location.hash.startsWith("#s=") && !document.getElementById("play")) {
  try { sessionStorage.setItem("portunus-shared", location.hash); } catch { /* The link must be opened again. */ }
}

// Conversations of the playground are deleted at sign-out for accounts that chose so.
const deleteAtSignOut = () => {
  try {
    const names = JSON.parse(localStorage.getItem("portunus-delete-at-sign-out"));
    return Array.isArray(names) ? names.filter((name) => String(name).startsWith("portunus-playground-")) : [];
  } catch { return []; }
};
document.querySelector("form.out")?.addEventListener("submit", async (event) => {
  const names = deleteAtSignOut();
  if (!names.length) return;
  event.preventDefault();
  const deleted = names.map((name) => new Promise((done) => {
    const request = indexedDB.deleteDatabase(name);
    for (const end of ["success", "error"]) request.addEventListener(end, done);
  }));
  // A tab that does not close its database must not prevent the sign-out.
  await Promise.race([Promise.all(deleted), new Promise((done) => { setTimeout(done, 2000); })]);
  event.target.submit();
});

// Live parts refresh every two seconds, but not while the user works in them.
for (const label of document.querySelectorAll("[data-live]")) {
  const box = label.querySelector("input");
  label.hidden = false;
  const look = async () => {
    if (!box.checked) return;
    try {
      const got = await fetch(location.href, { credentials: "same-origin" });
      const fresh = new DOMParser().parseFromString(await got.text(), "text/html").getElementById(label.dataset.live);
      const shown = document.getElementById(label.dataset.live);
      const busy = shown.contains(document.activeElement) || shown.querySelector("details[open]");
      if (got.ok && fresh && !busy && fresh.innerHTML !== shown.innerHTML) shown.replaceChildren(...fresh.childNodes);
    } catch { /* Retried with the next refresh. */ }
    setTimeout(look, 2000);
  };
  box.addEventListener("change", look);
  setTimeout(look, 2000);
}

// Days and a range exclude each other: days would count more.
const range = document.querySelector(".filters select#range");
const days = ["from", "to"].map((id) => document.getElementById(id));
if (range && days.every(Boolean)) {
  range.addEventListener("change", () => { for (const day of days) day.value = ""; });
}

// Dragging over the steps of a chart shows their days alone. The chart may be replaced meanwhile.
let dragged = null;
const stepAt = (event) => event.target.closest?.("[data-zoom] .step[data-from]");
addEventListener("pointerdown", (event) => { dragged = event.button === 0 ? stepAt(event) : null; });
addEventListener("pointerup", (event) => {
  const [first, last] = [dragged, stepAt(event)];
  dragged = null;
  if (!first || !last || first === last) return;
  const days = [first, last].flatMap((step) => [step.dataset.from, step.dataset.to]).sort();
  location.assign(`${last.closest("[data-zoom]").dataset.zoom}&from=${days[0]}&to=${days[3]}`);
});
// A link under the pointer would be dragged itself.
addEventListener("dragstart", (event) => { if (dragged) event.preventDefault(); });

// A checked box disables the field it makes meaningless.
for (const box of document.querySelectorAll("input[data-disables]")) {
  const field = document.getElementById(box.dataset.disables);
  if (!field) continue;
  const follow = () => { field.disabled = box.checked; };
  box.addEventListener("change", follow);
  follow();
}

// Strength hint of a new password: length counts most, character classes a little.
for (const field of document.querySelectorAll("input[data-strength]")) {
  // Replaces the help below the field, so the layout stays.
  const told = document.getElementById(`${field.id}-help`);
  if (!told) continue;
  const help = told.textContent;
  told.setAttribute("aria-live", "polite");
  field.addEventListener("input", () => {
    const text = field.value;
    const kinds = [/[a-z]/, /[A-Z]/, /[0-9]/, /[^A-Za-z0-9]/].filter((kind) => kind.test(text)).length;
    const varied = new Set(text).size;
    const points = Math.min(text.length, varied * 2) + kinds * 2;
    const [word, level] = text.length === 0 ? [help, ""]
      : text.length < 10 ? [`${10 - text.length} more to go`, "weak"]
      : points < 18 ? ["Fair. A few more characters would help.", "fair"]
      : points < 26 ? ["Good.", "good"] : ["Very good.", "good"];
    told.textContent = word;
    told.dataset.level = level;
  });
}

// Passkeys (WebAuthn Level 3). The page's own form submits the response.
const bytes = (text) => Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));
const text = (buffer) => btoa(String.fromCharCode(...new Uint8Array(buffer)))
  .replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
for (const form of document.querySelectorAll("form[data-passkey]")) {
  if (!window.PublicKeyCredential) continue;
  form.hidden = false;
  const alert = form.querySelector(".objection[role=alert]");
  form.addEventListener("submit", async (event) => {
    if (form.elements.namedItem("client").value) return;
    event.preventDefault();
    alert.hidden = true;
    try {
      const begun = await fetch(form.dataset.begin, { method: "POST" });
      if (!begun.ok || begun.redirected) throw new Error("not begun");
      const asked = await begun.json();
      const known = (ids) => ids.map((id) => ({ type: "public-key", id: bytes(id) }));
      const creating = form.dataset.passkey === "create";
      const made = creating
        ? await navigator.credentials.create({ publicKey: {
            challenge: bytes(asked.challenge),
            rp: { id: asked.rpId, name: "Portunus" },
            user: {
              id: new TextEncoder().encode(asked.user.id),
              name: asked.user.name,
              displayName: asked.user.name,
            },
            pubKeyCredParams: asked.algorithms.map((alg) => ({ type: "public-key", alg })),
            excludeCredentials: known(asked.exclude),
            authenticatorSelection: { residentKey: "preferred", userVerification: "preferred" },
            attestation: "none",
          } })
        : await navigator.credentials.get({ publicKey: {
            challenge: bytes(asked.challenge),
            rpId: asked.rpId,
            allowCredentials: known(asked.allow),
            userVerification: asked.userVerification,
          } });
      const put = (name, value) => { form.elements.namedItem(name).value = value; };
      put("id", made.id);
      put("client", text(made.response.clientDataJSON));
      if (creating) {
        put("authenticator", text(made.response.getAuthenticatorData()));
        put("key", text(made.response.getPublicKey()));
        put("algorithm", made.response.getPublicKeyAlgorithm());
      } else {
        put("authenticator", text(made.response.authenticatorData));
        put("signature", text(made.response.signature));
      }
      form.requestSubmit();
    } catch (error) {
      alert.textContent = error.name === "InvalidStateError"
        ? "This device has a passkey for this account already."
        : "That did not work. Try again, or use another way.";
      alert.hidden = false;
    }
  });
}
