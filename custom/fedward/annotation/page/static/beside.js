// Another image of the patient or lesion, side by side with the one in question, which can still be answered.

import { imageAddress, nameOf } from "./server.js";

const $ = (id) => document.getElementById(id);
const MOST = { wide: 1600, high: 1600 }; // pixels

let open = false; // the reader wants an image beside the one in question
let ids = []; // of the images that may be there, those of the same lesion first
let current = 0;

/** Begin with another image in question, and the others of its group. */
export function begin(inQuestion, group, together) {
  const others = (group ?? []).filter((id) => id !== inQuestion);
  ids = [...others.filter((id) => together.includes(id)), ...others.filter((id) => !together.includes(id))];
  current = 0;
  $("side").hidden = ids.length === 0;
  tell();
}

export function isOpen() {
  return open && ids.length > 0;
}

export function toggle() {
  if (!ids.length) return;
  open = !open;
  tell();
}

/** Show the image so many places on. */
export function step(places) {
  current = (current + places + ids.length) % ids.length;
  tell();
}

/** Show an image of the group. */
export function choose(id) {
  if (ids.includes(id)) current = ids.indexOf(id);
  tell();
}

function tell() {
  $("side").setAttribute("aria-pressed", String(isOpen()));
  $("beside").hidden = !isOpen();
  $("frame").classList.toggle("two", isOpen());
  if (!isOpen()) return $("beside-image").removeAttribute("src");
  const id = ids[current];
  const address = imageAddress(id, MOST);
  if ($("beside-image").getAttribute("src") !== address) $("beside-image").src = address;
  $("beside-image").alt = `Image ${id}`;
  $("beside-name").textContent = `Image ${nameOf(id)}${ids.length > 1 ? ` · ${current + 1} of ${ids.length} others` : ""}`;
}

$("side").addEventListener("click", toggle);
