// Two conveniences; every page works without them.
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

// A ticked box switches the field off that it makes meaningless.
for (const box of document.querySelectorAll("input[data-disables]")) {
  const field = document.getElementById(box.dataset.disables);
  if (!field) continue;
  const follow = () => { field.disabled = box.checked; };
  box.addEventListener("change", follow);
  follow();
}
