// The picture on the stage: its pixels, as they came first, times `scale`, moved by x and y.

import * as grey from "./grey.js";
import { imageAddress } from "./server.js";
import * as sizes from "./size.js";

const $ = (id) => document.getElementById(id);
const stage = $("stage"), image = $("image");
const place = { scale: 1, x: 0, y: 0 };
const extent = { width: 0, height: 0 }; // of the picture as it came first; one with more pixels takes the same room
const fingers = new Map();
const NOTCH = 100; // pixels of the wheel for a slice
const AGAIN = 5_000; // milliseconds until a picture that did not come is asked for again

let onStage = null; // id of the picture that is or will be seen
let told = { seen() {}, redrawn() {}, failed() {}, late() {}, wheel: null };
let turned = false; // a picture of the same volume is on its way
let sharpened = false; // the same picture, with all its pixels, is on its way
let rolled = 0; // pixels that the wheel has turned

// --- one picture after the other

/** Put a picture on the stage. Then one of three is called: `seen`, `failed` for good, or `late` and once more. After
 *  `seen`, `redrawn` says that the same picture came in another window or size.
 *  One of the `sameVolume` takes the place and the window of the one before. */
export function show(id, calls, sameVolume = false) {
  onStage = id;
  told = calls;
  turned = sameVolume;
  sharpened = false;
  if (sameVolume) {
    image.alt = `Image ${id}`;
    image.src = imageAddress(id, { ...grey.turn(id), ...sizes.size() });
    return;
  }
  image.hidden = true;
  grey.forget();
  if (id === null) return image.removeAttribute("src");
  sizes.begin(stage);
  image.alt = `Image ${id}`;
  image.src = imageAddress(id, sizes.size());
}

/** Return the id of the picture on the stage, null for none. */
export function current() {
  return onStage;
}

image.addEventListener("load", async () => {
  const inWindow = grey.drawn();
  if (turned && !image.hidden) {
    turned = false;
    const before = extent.width;
    measure();
    put((place.scale * before) / extent.width, place.x, place.y);
    if (!grey.known()) grey.look(onStage);
    return told.seen();
  }
  turned = false;
  if ((inWindow || sharpened) && !image.hidden) {
    tellScale(); // it is the same picture, in another window or sharper
    return told.redrawn();
  }
  const id = onStage;
  const levels = grey.look(id);
  if (grey.keeps()) await levels; // not first in one window and then in the reader's
  if (id !== onStage) return;
  image.hidden = false;
  measure();
  fit();
  told.seen();
});
image.addEventListener("error", async () => {
  const id = onStage, address = image.src;
  if (id === null) return;
  const answer = await fetch(address).catch(() => null);
  if (id !== onStage) return;
  if (answer?.status === 404) return told.failed();
  told.late();
  setTimeout(() => id === onStage && (image.src = address), AGAIN);
});

// --- zoom

function measure() {
  Object.assign(extent, { width: image.naturalWidth, height: image.naturalHeight });
  Object.assign(image.style, { width: `${extent.width}px`, height: `${extent.height}px` });
}

function smallest() {
  return Math.min(stage.clientWidth / extent.width, stage.clientHeight / extent.height);
}

/** Ask for all pixels of the picture if more of them would be seen. */
function sharpen() {
  const shown = place.scale * devicePixelRatio; // pixels of the screen for one of the picture
  if (shown < 1.1 || !sizes.isReduced(image)) return;
  sizes.whole();
  sharpened = true;
  image.src = imageAddress(onStage, grey.turn(onStage));
}

function tellScale() {
  const pixels = (place.scale * extent.width) / image.naturalWidth;
  $("scale").textContent = sizes.isReduced(image) ? "Fits" : `${Math.round(100 * pixels)} %`;
}

export function fit() {
  put(smallest(), 0, 0);
}

function put(scale, x, y) {
  if (!extent.width || image.hidden) return;
  place.scale = Math.min(Math.max(scale, smallest()), Math.max(16 * smallest(), 8));
  place.x = within(x, stage.clientWidth, place.scale * extent.width);
  place.y = within(y, stage.clientHeight, place.scale * extent.height);
  image.style.transform = `translate(${place.x}px, ${place.y}px) scale(${place.scale})`;
  stage.style.touchAction = zoomed() ? "none" : "pan-y"; // a whole image lets a finger scroll the page
  tellScale();
  sharpen();
}

/** Return the offset that leaves no empty border at one side while the other is cut off. */
function within(offset, room, size) {
  return size <= room ? (room - size) / 2 : Math.min(0, Math.max(room - size, offset));
}

export function zoom(factor, x = stage.clientWidth / 2, y = stage.clientHeight / 2) {
  const before = place.scale;
  const scale = Math.min(Math.max(before * factor, smallest()), Math.max(16 * smallest(), 8));
  put(scale, x - ((x - place.x) * scale) / before, y - ((y - place.y) * scale) / before);
}

export function zoomed() {
  return place.scale > 1.001 * smallest();
}

export function move(x, y) {
  put(place.scale, place.x + x, place.y + y);
}

// --- mouse and fingers

function at(event) {
  const box = stage.getBoundingClientRect();
  return { x: event.clientX - box.left, y: event.clientY - box.top };
}

function middle() {
  const [a, b = a] = [...fingers.values()];
  return { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2, width: Math.hypot(a.x - b.x, a.y - b.y) };
}

stage.addEventListener("wheel", (event) => {
  event.preventDefault();
  const { x, y } = at(event);
  const pixels = event.deltaY * (event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 33 : 1);
  if (!told.wheel || event.ctrlKey) return zoom(Math.exp(-0.002 * pixels), x, y);
  rolled += pixels;
  const steps = Math.trunc(rolled / NOTCH);
  rolled -= steps * NOTCH;
  if (steps) told.wheel(steps);
}, { passive: false });
stage.addEventListener("pointerdown", (event) => {
  stage.setPointerCapture(event.pointerId);
  if (event.button === 2) return grey.grab(event);
  fingers.set(event.pointerId, at(event));
});
stage.addEventListener("pointermove", (event) => {
  if (grey.drag(event) || !fingers.has(event.pointerId)) return;
  const before = middle();
  fingers.set(event.pointerId, at(event));
  const now = middle();
  move(now.x - before.x, now.y - before.y);
  if (before.width && now.width) zoom(now.width / before.width, now.x, now.y);
});
for (const end of ["pointerup", "pointercancel"]) {
  stage.addEventListener(end, (event) => {
    grey.release();
    fingers.delete(event.pointerId);
  });
}
stage.addEventListener("contextmenu", (event) => grey.known() && event.preventDefault());
stage.addEventListener("dblclick", (event) => {
  const { x, y } = at(event);
  if (zoomed()) fit();
  else zoom(3, x, y);
});
$("in").addEventListener("click", () => zoom(1.5));
$("out").addEventListener("click", () => zoom(1 / 1.5));
$("fit").addEventListener("click", fit);

let whole = true; // the image fitted the stage before the stage changed its size
new ResizeObserver(() => {
  if (whole) fit();
  else put(place.scale, place.x, place.y);
}).observe(stage);
new MutationObserver(() => (whole = !zoomed())).observe(image, { attributeFilter: ["style"] });
