// Three conveniences; every page works without them.
"use strict";

// Copy buttons are hidden until there is a script to serve them.
for (const button of document.querySelectorAll("button[data-copy]")) {
  const source = document.getElementById(button.dataset.copy);
  if (!source) continue;
  const label = button.textContent;
  button.hidden = false;
  button.addEventListener("click", async () => {
    let done = false;
    try {
      // Absent on plain HTTP beyond this machine.
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

// A list that is watched is fetched again every two seconds.
for (const label of document.querySelectorAll("[data-live]")) {
  const box = label.querySelector("input");
  label.hidden = false;
  const look = async () => {
    if (!box.checked) return;
    try {
      const got = await fetch(location.href, { credentials: "same-origin" });
      const fresh = new DOMParser().parseFromString(await got.text(), "text/html").getElementById(label.dataset.live);
      const shown = document.getElementById(label.dataset.live);
      if (got.ok && fresh && fresh.innerHTML !== shown.innerHTML) shown.replaceChildren(...fresh.childNodes);
    } catch { /* The next look may go better. */ }
    setTimeout(look, 2000);
  };
  box.addEventListener("change", look);
}

// A ticked box switches the field off that it makes meaningless.
for (const box of document.querySelectorAll("input[data-disables]")) {
  const field = document.getElementById(box.dataset.disables);
  if (!field) continue;
  const follow = () => { field.disabled = box.checked; };
  box.addEventListener("change", follow);
  follow();
}
