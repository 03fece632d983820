// How large a picture is asked for: as large as the stage shows it, and whole once somebody looks closer. On a slow
// network a picture of many pixels would take long, and most of them would not be seen.

const STEP = 128; // pixels, so that windows of nearly one size ask for the same picture
const MOST = 4096; // pixels

let most = null; // pixels that fit: `wide` and `high`; null: all

/** Begin with a picture for a stage. */
export function begin(stage) {
  most = { wide: pixels(stage.clientWidth), high: pixels(stage.clientHeight) };
}

function pixels(length) {
  const steps = Math.max(1, Math.ceil((length * devicePixelRatio) / STEP));
  return Math.min(steps * STEP, MOST);
}

/** Ask for all pixels from now on. */
export function whole() {
  most = null;
}

/** Return what an address of the picture says of its size. */
export function size() {
  return most ?? {};
}

/** Return whether a picture may have more pixels than it shows. */
export function isReduced(image) {
  return most !== null && (image.naturalWidth >= most.wide || image.naturalHeight >= most.high);
}
