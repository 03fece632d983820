// The slices of a volume around the one in question: by slider, wheel and keys, one picture on its way at a time.

import * as viewer from "./viewer.js";

const $ = (id) => document.getElementById(id);
const slider = $("slice");
const LEAP = 10; // slices that a page key moves

let place = null; // of the image in question: the id of its volume, its index there, how many there are
let put = null; // shows the picture of an id
let wanted = null; // index of the slice to be seen, while another one is on its way
let coming = false;

/** Begin with another image in question; `next` is null where it is no slice. */
export function begin(next, show) {
  [place, put, wanted, coming] = [next, show, null, false];
  $("slices").hidden = !place;
  if (!place) return;
  slider.max = place.count - 1;
  tell(place.index);
}

export function known() {
  return place !== null;
}

/** Return what is said of the image in question, empty where it is no slice. */
export function about() {
  return place ? ` · slice ${place.index + 1} of ${place.count}. Your answer is for this slice alone` : "";
}

/** Return what is said while another slice is looked at. */
export function away() {
  return `Slice ${place.index + 1} is in question. Back to it`;
}

export function scroll(places) {
  go((wanted ?? indexOf(viewer.current())) + places);
}

export function back() {
  go(place.index);
}

/** Hear that a picture has come, or cannot. */
export function came() {
  coming = false;
  const missing = place && wanted !== null && idOf(wanted) !== viewer.current();
  if (missing) go(wanted);
  else wanted = null;
}

/** Do what a key says, and return whether it says something. */
export function press(key) {
  const steps = { ArrowUp: -1, ArrowLeft: -1, ArrowDown: 1, ArrowRight: 1, PageUp: -LEAP, PageDown: LEAP }[key];
  if (!place || (steps === undefined && key !== "Home")) return false;
  if (steps) scroll(steps);
  else back();
  return true;
}

function go(index) {
  wanted = Math.min(Math.max(index, 0), place.count - 1);
  tell(wanted);
  if (coming || idOf(wanted) === viewer.current()) return;
  coming = true;
  put(idOf(wanted), true);
}

function idOf(index) {
  return `${place.of}#${index}`;
}

function indexOf(id) {
  return Number(id.slice(place.of.length + 1));
}

function tell(index) {
  slider.value = index;
  $("slice-now").textContent = `Slice ${index + 1} of ${place.count}`;
}

slider.addEventListener("input", () => go(Number(slider.value)));
slider.addEventListener("keydown", (event) => {
  if (/^(Arrow|Page|Home|End)/.test(event.key)) event.stopPropagation(); // they move the slider itself
});
