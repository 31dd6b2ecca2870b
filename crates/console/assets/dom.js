// Nodes of the playground's pages, made without HTML.

// Makes an element with a class and children: nodes, texts, and lists of them.
export const element = (tag, className, ...children) => {
  const node = document.createElement(tag);
  if (className) node.className = className;
  // One by one: a list may be longer than the arguments of a call.
  for (const child of children) for (const one of Array.isArray(child) ? child : [child]) node.append(one);
  return node;
};

// Makes a button.
export const button = (className, text, action) => {
  const node = element("button", className, text);
  node.type = "button";
  if (action) node.addEventListener("click", action);
  return node;
};

// Copies a text. `navigator.clipboard` exists only in secure contexts.
export async function copyText(node) {
  try {
    await navigator.clipboard.writeText(node.textContent);
    return true;
  } catch {
    const range = document.createRange();
    range.selectNodeContents(node);
    const selection = getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
    return document.execCommand("copy");
  }
}
