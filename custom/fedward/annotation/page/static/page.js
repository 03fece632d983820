// The page of one reader: shows what waits, sends answers until the server has them, zooms the image.

const $ = (id) => document.getElementById(id);
const secret = document.querySelector("meta[name=form-secret]").content;
const stage = $("stage"), image = $("image");
const choices = [...document.querySelectorAll(".choice")];
const LOOK_AGAIN = 10_000; // milliseconds, while nothing waits
const LONGEST_WAIT = 5_000; // milliseconds between attempts to send

let reader = localStorage.getItem("fedward-reader") ?? ""; // of this tab: others may have other readers
let view = null; // what the server said last
let shown = null; // id of the image on the stage
let ready = false; // the image on the stage can be seen, and nothing is being sent
let sending = false; // an answer is on its way, in the name of the reader
let broken = false; // the image on the stage cannot be shown
let turn = 0; // answers of the server that come late are for an older turn

// The token has done its work: a cookie keeps it. It should not stay where a shoulder or a screenshot sees it.
history.replaceState(null, "", "/");

// --- the server

function newKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

function trouble(text) {
  $("trouble").textContent = text;
}

/** Send an answer until the server has stored or refused it; it carries a key, so arriving twice does no harm. */
async function post(path, body) {
  const message = JSON.stringify({ annotator: reader, key: newKey(), ...body });
  for (let wait = 500; ; wait = Math.min(2 * wait, LONGEST_WAIT)) {
    try {
      const answer = await fetch(path, { method: "POST", body: message, headers: { "X-Form-Secret": secret } });
      if (answer.status < 500) return { status: answer.status, content: await answer.json() };
      trouble(`Not saved yet, trying again. ${(await answer.json()).message}`);
    } catch {
      trouble("Not saved yet: the program does not answer. Leave this page open; it tries again by itself.");
    }
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}

async function send(path, body, text, button) {
  if (!ready) return;
  turn++;
  setReady(false);
  setSending(true);
  button.classList.add("chosen");
  const { status, content } = await post(path, body);
  button.classList.remove("chosen");
  setSending(false);
  trouble("");
  if (status === 200) {
    render(content, text);
  } else {
    trouble(status === 409 ? content.message : `Not saved. ${content.message}`);
    if (content.view) render(content.view, "");
  }
}

async function look(showing = shown ?? "") {
  if (!reader) return;
  const mine = ++turn;
  try {
    const answer = await fetch(`/state?${new URLSearchParams({ annotator: reader, showing })}`);
    const content = await answer.json();
    if (mine !== turn) return;
    trouble(answer.ok ? "" : content.message);
    if (answer.ok) render(content);
  } catch {
    if (mine !== turn) return;
    trouble("The program does not answer. Answers so far are saved.");
    setTimeout(() => mine === turn && look(showing), LONGEST_WAIT);
  }
}

// --- what is seen

function render(next, text) {
  view = next;
  const asked = view.image;
  $("bar").max = Math.max(view.total, 1);
  $("bar").value = view.decided;
  $("count").textContent = `${view.decided} of ${view.total}`;
  $("waiting").textContent = view.skipped ? `${view.waiting} (${view.skipped} skipped)` : view.waiting;
  $("mine").textContent = view.mine;
  $("undecidable").textContent = view.undecidable;
  $("agreement").textContent = view.read_twice ? `${view.unanimous} of ${view.read_twice}` : "–";
  $("about").textContent = asked ? `Image ${asked.sample_id} · asked by ${asked.strategy}, round ${asked.round}` : "";
  if (text !== undefined) $("said").textContent = text;
  $("undo").setAttribute("aria-label", view.last ? `Undo: ${view.last.text}` : "Undo");
  $("undo").querySelector("span").textContent = view.last ? `Undo: ${view.last.text}` : "Undo";
  show(asked ? asked.sample_id : null);
}

function show(id) {
  $("question").textContent = id === null ? "Nothing is waiting for you" : "What does this image show?";
  if (id === null) {
    const done = view.total ? "All images are done. Thank you." : "No images have been asked for yet.";
    explain(`${done} New ones appear here by themselves.`);
  }
  if (id !== null && id === shown && !broken) return setReady(image.complete);
  shown = id;
  broken = false;
  setReady(id === null);
  image.hidden = true;
  if (id === null) return image.removeAttribute("src");
  explain("");
  load(id);
}

function load(id) {
  image.alt = `Image ${id}`;
  image.src = `/image?${new URLSearchParams({ id })}`;
}

function explain(text) {
  $("empty").textContent = text;
  $("empty").hidden = !text;
}

function setReady(value) {
  ready = value;
  const seen = ready && shown !== null;
  for (const button of choices) button.setAttribute("aria-disabled", !seen || broken);
  for (const name of ["cannot", "skip"]) $(name).setAttribute("aria-disabled", !seen);
  $("undo").setAttribute("aria-disabled", !ready || !view?.last);
}

/** Keep the reader, and ask before the page is left, until the server has said what became of the answer. */
function setSending(value) {
  sending = value;
  $("reader").setAttribute("aria-disabled", sending);
}

window.addEventListener("beforeunload", (event) => {
  if (sending) event.preventDefault();
});

image.addEventListener("load", () => {
  image.hidden = false;
  explain("");
  fit();
  setReady(true);
});
image.addEventListener("error", async () => {
  const id = shown;
  if (id === null) return;
  const answer = await fetch(image.src).catch(() => null);
  if (id !== shown) return;
  if (answer?.status === 404) {
    broken = true;
    explain("This image cannot be shown. Skip it, or choose “Cannot tell”, and tell your IT its number.");
    return setReady(true);
  }
  explain("The image does not come. This page tries again by itself.");
  setTimeout(() => id === shown && load(id), LONGEST_WAIT);
});

// --- answers

function answer(button, kind, label, text) {
  if (shown === null || (kind === "label" && broken)) return;
  send("/answer", { sample_id: shown, kind, label, seen: view.seen }, text, button);
}

function undo() {
  if (view?.last) send("/undo", { answer: view.last.answer }, `Taken back: ${view.last.text}.`, $("undo"));
}

for (const button of choices) {
  const label = button.dataset.label;
  button.addEventListener("click", () => answer(button, "label", label, `Saved: ${label}.`));
}
$("cannot").addEventListener("click", () => answer($("cannot"), "cannot tell", null, "Saved: cannot tell."));
$("skip").addEventListener("click", () => answer($("skip"), "skip", null, "Skipped; it comes again at the end."));
$("undo").addEventListener("click", undo);

// --- the image: its own pixels times `scale`, moved by x and y

const place = { scale: 1, x: 0, y: 0 };
const fingers = new Map();

function smallest() {
  return Math.min(stage.clientWidth / image.naturalWidth, stage.clientHeight / image.naturalHeight);
}

function fit() {
  put(smallest(), 0, 0);
}

function put(scale, x, y) {
  if (!image.naturalWidth || image.hidden) return;
  place.scale = Math.min(Math.max(scale, smallest()), Math.max(16 * smallest(), 8));
  place.x = within(x, stage.clientWidth, place.scale * image.naturalWidth);
  place.y = within(y, stage.clientHeight, place.scale * image.naturalHeight);
  image.style.transform = `translate(${place.x}px, ${place.y}px) scale(${place.scale})`;
  stage.style.touchAction = zoomed() ? "none" : "pan-y"; // a whole image lets a finger scroll the page
  $("scale").textContent = `${Math.round(100 * place.scale)} %`;
}

/** Return the offset that leaves no empty border at one side while the other is cut off. */
function within(offset, room, size) {
  return size <= room ? (room - size) / 2 : Math.min(0, Math.max(room - size, offset));
}

function zoom(factor, x = stage.clientWidth / 2, y = stage.clientHeight / 2) {
  const before = place.scale;
  const scale = Math.min(Math.max(before * factor, smallest()), Math.max(16 * smallest(), 8));
  put(scale, x - ((x - place.x) * scale) / before, y - ((y - place.y) * scale) / before);
}

function zoomed() {
  return place.scale > 1.001 * smallest();
}

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
  const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 33 : 1;
  zoom(Math.exp(-0.002 * lines * event.deltaY), x, y);
}, { passive: false });
stage.addEventListener("pointerdown", (event) => {
  stage.setPointerCapture(event.pointerId);
  fingers.set(event.pointerId, at(event));
});
stage.addEventListener("pointermove", (event) => {
  if (!fingers.has(event.pointerId)) return;
  const before = middle();
  fingers.set(event.pointerId, at(event));
  const now = middle();
  put(place.scale, place.x + now.x - before.x, place.y + now.y - before.y);
  if (before.width && now.width) zoom(now.width / before.width, now.x, now.y);
});
for (const end of ["pointerup", "pointercancel"]) {
  stage.addEventListener(end, (event) => fingers.delete(event.pointerId));
}
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

// --- the reader

function askName() {
  $("name").value = reader;
  $("who").showModal();
}

function greet() {
  $("reader").textContent = reader;
  $("reader").setAttribute("aria-label", `Reader: ${reader}. Change`);
}

$("reader").addEventListener("click", () => {
  if (!sending) askName();
});
$("who").addEventListener("cancel", (event) => {
  if (!reader) event.preventDefault();
});
$("who").querySelector("form").addEventListener("submit", () => {
  if (!$("name").value.trim()) return;
  reader = $("name").value.trim();
  localStorage.setItem("fedward-reader", reader);
  $("said").textContent = "";
  greet();
  stage.focus();
  look("");
});

// --- keys

$("help").addEventListener("click", () => $("keys").showModal());
$("shortcuts").checked = localStorage.getItem("fedward-shortcuts") !== "off";
$("shortcuts").addEventListener("change", (event) => {
  localStorage.setItem("fedward-shortcuts", event.target.checked ? "on" : "off");
});

const STEP = 60; // pixels an arrow key moves the image
const commands = {
  c: () => $("cannot").click(),
  s: () => $("skip").click(),
  u: undo,
  f: fit,
  "+": () => zoom(1.5),
  "=": () => zoom(1.5),
  "-": () => zoom(1 / 1.5),
  "?": () => $("keys").showModal(),
};
const arrows = { ArrowLeft: [STEP, 0], ArrowRight: [-STEP, 0], ArrowUp: [0, STEP], ArrowDown: [0, -STEP] };

document.addEventListener("keydown", (event) => {
  if (document.querySelector("dialog[open]") || event.altKey) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (event.ctrlKey || event.metaKey) {
    if (key === "z" && !event.repeat) undo();
    return;
  }
  if (arrows[key] && zoomed()) {
    put(place.scale, place.x + arrows[key][0], place.y + arrows[key][1]);
    return event.preventDefault();
  }
  if (!$("shortcuts").checked) return;
  const choice = choices.find((button) => button.dataset.key === key);
  const repeatable = "+=-".includes(key);
  if ((!choice && !commands[key]) || (event.repeat && !repeatable)) return;
  event.preventDefault();
  if (choice) choice.click();
  else commands[key]();
});

// --- begin, and look again when another tab or the site's job may have changed something

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && ready) look();
});
window.addEventListener("focus", () => {
  if (ready) look();
});
setInterval(() => {
  if (ready && shown === null) look();
}, LOOK_AGAIN);

greet();
setReady(false);
if (reader) look();
else askName();
