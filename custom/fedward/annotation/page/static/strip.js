// The other images of the same patient or lesion, small, beside the one in question.

import { imageAddress } from "./server.js";

const strip = document.getElementById("strip");
const SMALL = { wide: 96, high: 96 }; // pixels

let filled = ""; // what the strip was filled with

/** Show the images, of which an answer counts for those `together`; `choose` is called with the id of one. */
export function fill(ids, together, more, choose) {
  const content = JSON.stringify([ids, together, more]);
  if (content === filled) return; // the focus stays where it is
  filled = content;
  strip.hidden = ids.length < 2;
  strip.replaceChildren(...(strip.hidden ? [] : ids.map((id) => thumbnail(id, together.includes(id), choose))));
  if (!strip.hidden && more) strip.append(Object.assign(document.createElement("p"), { textContent: `and ${more} more` }));
}

function thumbnail(id, sameAnswer, choose) {
  const button = document.createElement("button");
  const text = sameAnswer ? `Image ${id}, in question` : `Image ${id}`;
  Object.assign(button, { type: "button", title: text, className: sameAnswer ? "together" : "" });
  button.dataset.id = id;
  const small = Object.assign(document.createElement("img"), { src: imageAddress(id, SMALL), alt: text });
  button.append(small);
  button.addEventListener("click", () => choose(id));
  return button;
}

/** Mark the image that is on the stage. */
export function mark(id) {
  for (const button of strip.querySelectorAll("button")) {
    button.setAttribute("aria-pressed", String(button.dataset.id === id));
    if (button.dataset.id === id) button.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
}

/** Return the id beside the one on the stage, so many places on; undefined at the end. */
export function beside(id, places) {
  const ids = [...strip.querySelectorAll("button")].map((button) => button.dataset.id);
  return ids[ids.indexOf(id) + places];
}
