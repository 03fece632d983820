// Window and level of a grey picture, brightness and contrast of a coloured one. While they are moved, the browser
// stretches the 8 bits it has; then the program draws a picture with more bits again from its own values. What a reader
// has set holds for the next images of the same kind, in relation to the first window of each.

import { get, imageAddress } from "./server.js";
import { size } from "./size.js";

const $ = (id) => document.getElementById(id);
const image = $("image"), panel = $("levels");
const FINEST = 256; // steps of a slider, and the narrowest window as a share of the values
const COLOUR = { low: 0, high: 255, centre: 127.5, width: 255, deep: false, inverted: false, colour: true };
const SLIDER_KEYS = /^(Arrow|Page|Home|End)/; // they move a slider, not the image
const kept = new Map(); // kind of image -> the reader's window: places of the centre and share of the first width

let id = null;
let levels = null; // lowest and highest value, the window at first, whether there are more than 8 bits
let drawnWith = null; // the window the picture on the stage was drawn with
let wanted = null; // the window to be seen
let drawing = null; // the window of a picture that is on its way
let held = null; // where the mouse was
let opens = false; // W was pressed before the levels had come

/** Begin with another picture. */
export function forget() {
  levels = drawnWith = wanted = drawing = held = null;
  image.style.filter = "";
  $("window").hidden = true;
}

/** Return whether the reader has set a window that may hold for the next picture, which is shown once that is known. */
export function keeps() {
  return kept.size > 0;
}

/** Ask what values a picture has, and offer its window, or brightness and contrast. */
export async function look(shown) {
  id = shown;
  const { ok, content } = await get("/levels", { id }).catch(() => ({ ok: false }));
  if (id !== shown) return;
  if (!ok) return close();
  levels = content ?? COLOUR;
  drawnWith = wanted = first();
  const range = levels.high - levels.low;
  const [centre, width] = levels.colour
    ? [{ min: -100, max: 100, step: 1 }, { min: 25, max: 400, step: 1 }]
    : [{ min: levels.low, max: levels.high }, { min: range / FINEST, max: range }];
  const step = levels.deep && range > FINEST ? 1 : range / FINEST;
  Object.assign($("centre"), { step, ...centre });
  Object.assign($("width"), { step, ...width });
  $("centre-name").textContent = levels.colour ? "Brightness" : "Centre";
  $("width-name").textContent = levels.colour ? "Contrast" : "Width";
  panel.setAttribute("aria-label", levels.colour ? "Brightness and contrast" : "Window");
  $("window").hidden = false;
  const own = kept.get(kind());
  if (own) {
    set(levels.centre + own.places * levels.width, own.share * levels.width);
    settle();
  } else tell();
  if (opens) toggle();
}

function kind() {
  return levels.colour ? "colour" : `${levels.deep} ${levels.inverted}`;
}

function first() {
  return { centre: levels.centre, width: levels.width };
}

/** Go on with another slice of the same volume, or the same one again, and return how it is to be drawn. */
export function turn(other) {
  id = other;
  if (!levels?.deep) return {};
  drawing = wanted;
  return isFirst() ? {} : wanted;
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

function isFirst() {
  return wanted.centre === levels.centre && wanted.width === levels.width;
}

function set(centre, width) {
  const range = levels.high - levels.low;
  const [narrowest, widest] = levels.colour ? [range / 4, range * 4] : [range / FINEST, Math.max(range, levels.width)];
  wanted = {
    centre: Math.min(Math.max(centre, levels.low), levels.high),
    width: Math.min(Math.max(width, narrowest), widest),
  };
  stretch();
  tell();
}

/** Keep what the reader has set for the next images of the kind. */
function keep() {
  if (isFirst()) kept.delete(kind());
  else kept.set(kind(), { places: (wanted.centre - levels.centre) / levels.width, share: wanted.width / levels.width });
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
  image.src = imageAddress(id, { ...wanted, ...size() });
}

function tell() {
  const changed = !isFirst();
  $("window").textContent = `${levels.colour ? "Brightness" : "Window"}${changed ? " (yours)" : ""}`;
  if (levels.colour) {
    $("centre").value = brightness();
    $("width").value = contrast();
    $("centre-now").textContent = brightness();
    $("width-now").textContent = `${contrast()} %`;
    return;
  }
  $("centre").value = wanted.centre;
  $("width").value = wanted.width;
  const text = (value) => (levels.high - levels.low > 20 ? Math.round(value) : value.toPrecision(3));
  $("centre-now").textContent = text(wanted.centre);
  $("width-now").textContent = text(wanted.width);
}

function brightness() {
  return Math.round(((COLOUR.centre - wanted.centre) / COLOUR.centre) * 100);
}

function contrast() {
  return Math.round((COLOUR.width / wanted.width) * 100);
}

export function reset() {
  if (!levels) return;
  set(levels.centre, levels.width);
  keep();
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
  if (held) {
    keep();
    settle();
  }
  held = null;
}

// --- the sliders

function close() {
  opens = false;
  panel.hidden = true;
  $("window").setAttribute("aria-expanded", "false");
}

export function toggle() {
  if (!levels) {
    opens = !opens;
    return;
  }
  opens = false;
  panel.hidden = !panel.hidden;
  $("window").setAttribute("aria-expanded", String(!panel.hidden));
  (panel.hidden ? $("window") : $("centre")).focus();
}

function slid() {
  const [first, second] = [Number($("centre").value), Number($("width").value)];
  if (levels.colour) set(COLOUR.centre * (1 - first / 100), (COLOUR.width * 100) / second);
  else set(first, second);
  keep();
}

$("window").addEventListener("click", toggle);
$("reset").addEventListener("click", reset);
for (const name of ["centre", "width"]) {
  $(name).addEventListener("input", slid);
  $(name).addEventListener("change", settle);
}
panel.addEventListener("keydown", (event) => {
  if (event.key === "Escape") toggle();
  if (SLIDER_KEYS.test(event.key)) event.stopPropagation();
});
