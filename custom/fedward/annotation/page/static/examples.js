// Images of each class that the site has chosen as examples.

import { get, imageAddress } from "./server.js";

const $ = (id) => document.getElementById(id);
const MOST = { wide: 800, high: 800 }; // pixels

/** Open the examples, whose classes have the `titles`. */
export async function open(titles) {
  if (!$("examples")) return;
  const { ok, content } = await get("/examples", {}).catch(() => ({ ok: false, content: {} }));
  const shown = ok ? Object.keys(titles).filter((name) => content[name]?.length) : [];
  $("examples-none").textContent = ok ? "None can be shown now." : content.message ?? "The server is not answering.";
  $("examples-none").hidden = shown.length > 0;
  $("examples-list").replaceChildren(...shown.flatMap((name) => section(titles[name], content[name])));
  $("examples").showModal();
}

function section(title, ids) {
  const row = Object.assign(document.createElement("div"), { className: "examples" });
  row.append(...ids.map((id, index) => example(id, `${title}, example ${index + 1}`)));
  return [Object.assign(document.createElement("h3"), { textContent: title }), row];
}

function example(id, text) {
  const image = Object.assign(document.createElement("img"), { alt: text, loading: "lazy" });
  image.src = imageAddress(id, MOST);
  const button = Object.assign(document.createElement("button"), { type: "button", title: "Larger or smaller" });
  button.setAttribute("aria-pressed", "false");
  button.append(image);
  button.addEventListener("click", () => {
    button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") === "false"));
  });
  return button;
}
