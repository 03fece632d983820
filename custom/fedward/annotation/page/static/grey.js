// Window and level of a grey picture. While they are moved, the browser stretches the 8 bits it has; then the program
// draws a picture with more bits anew from its own values.

import { get, imageAddress } from "./server.js";

const $ = (id) => document.getElementById(id);
const image = $("image"), panel = $("levels");
const FINEST = 256; // steps of a slider, and the narrowest window as a share of the values

let id = null;
let levels = null; // lowest and highest value, the window at first, whether there are more than 8 bits; null: no grey
let drawnWith = null; // the window the picture on the stage was drawn with
let wanted = null; // the window to be seen
let drawing = null; // the window of a picture that is on its way
let held = null; // where the mouse was

/** Begin with another picture. */
export function forget() {
  levels = drawnWith = wanted = drawing = held = null;
  image.style.filter = "";
  $("window").hidden = true;
}

/** Ask what values a picture has, and offer its window if it is grey. */
export async function look(shown) {
  id = shown;
  const { ok, content } = await get("/levels", { id }).catch(() => ({ ok: false }));
  if (id !== shown || !ok || !content) return close();
  levels = content;
  drawnWith = wanted = { centre: levels.centre, width: levels.width };
  for (const name of ["centre", "width"]) {
    const range = levels.high - levels.low;
    Object.assign($(name), name === "centre" ? { min: levels.low, max: levels.high } : { min: range / FINEST, max: range });
    $(name).step = levels.deep && range > FINEST ? 1 : range / FINEST;
  }
  $("window").hidden = false;
  tell();
}

/** Go on with another slice of the same volume, and return how it is to be drawn. */
export function turn(other) {
  id = other;
  if (!levels?.deep) return {};
  drawing = wanted;
  return wanted.centre === levels.centre && wanted.width === levels.width ? {} : wanted;
}

export function known() {
  return levels !== null;
}

/** Return whether the picture that has come is one in a window that was asked for. */
export function drawn() {
  if (!drawing) return false;
  drawnWith = drawing;
  drawing = null;
  stretch();
  return true;
}

function set(centre, width) {
  const range = levels.high - levels.low;
  wanted = {
    centre: Math.min(Math.max(centre, levels.low), levels.high),
    width: Math.min(Math.max(width, range / FINEST), Math.max(range, levels.width)),
  };
  stretch();
  tell();
}

/** Show the picture that is there as if it were drawn with the wanted window. */
function stretch() {
  const slope = drawnWith.width / wanted.width;
  const offset = (drawnWith.centre - wanted.centre) / wanted.width - slope / 2 + 0.5;
  for (const part of document.querySelectorAll("#stretch feComponentTransfer > *")) {
    part.setAttribute("slope", slope);
    part.setAttribute("intercept", levels.inverted ? 1 - slope - offset : offset);
  }
  const same = drawnWith.centre === wanted.centre && drawnWith.width === wanted.width;
  image.style.filter = same ? "" : "url(#stretch)";
}

function settle() {
  if (!levels?.deep || drawing) return;
  drawing = wanted;
  image.src = imageAddress(id, wanted);
}

function tell() {
  $("centre").value = wanted.centre;
  $("width").value = wanted.width;
  const text = (value) => (levels.high - levels.low > 20 ? Math.round(value) : value.toPrecision(3));
  $("centre-now").textContent = text(wanted.centre);
  $("width-now").textContent = text(wanted.width);
}

export function reset() {
  if (!levels) return;
  set(levels.centre, levels.width);
  settle();
}

// --- the mouse: to the side for the width, up and down for the centre, as at a reading station

export function grab(event) {
  if (levels) held = { x: event.clientX, y: event.clientY, ...wanted };
}

export function drag(event) {
  if (!held) return false;
  const step = (levels.high - levels.low) / 500;
  set(held.centre + (event.clientY - held.y) * step, held.width + (event.clientX - held.x) * step);
  return true;
}

export function release() {
  if (held) settle();
  held = null;
}

// --- the sliders

function close() {
  panel.hidden = true;
  $("window").setAttribute("aria-expanded", "false");
}

export function toggle() {
  if (!levels) return;
  panel.hidden = !panel.hidden;
  $("window").setAttribute("aria-expanded", String(!panel.hidden));
  (panel.hidden ? $("window") : $("centre")).focus();
}

$("window").addEventListener("click", toggle);
$("reset").addEventListener("click", reset);
for (const name of ["centre", "width"]) {
  $(name).addEventListener("input", () => set(Number($("centre").value), Number($("width").value)));
  $(name).addEventListener("change", settle);
}
panel.addEventListener("keydown", (event) => {
  if (event.key === "Escape") toggle();
  if (event.key !== "Tab") event.stopPropagation(); // arrows move the slider, not the image
});
