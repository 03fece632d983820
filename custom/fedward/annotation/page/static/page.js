// The page of one reader: shows what waits, and sends answers until the server has them.

import "./below.js";
import * as beside from "./beside.js";
import * as examples from "./examples.js";
import * as findings from "./findings.js";
import * as given from "./given.js";
import * as grey from "./grey.js";
import { CLOSED, get, nameOf, post } from "./server.js";
import * as remarks from "./remark.js";
import * as slices from "./slices.js";
import * as strip from "./strip.js";
import * as viewer from "./viewer.js";

const $ = (id) => document.getElementById(id);
const choices = [...document.querySelectorAll(".choice")];
const others = [...document.querySelectorAll("[data-kind]")]; // answers that are no class
const titles = Object.fromEntries(choices.map((button) => [button.dataset.label, button.dataset.title]));
const titleOf = (text) => findings.named(text).map((name) => titles[name] ?? name).join(", ");
const LOOK_AGAIN = 10_000; // milliseconds, while nothing waits
const AFTER_TROUBLE = 5_000; // milliseconds until the server is asked again
const SLOW = 400; // milliseconds until it is said that something takes long
const GLANCE = 300; // milliseconds that an image is seen before it can be answered: a double click is one answer

let reader = localStorage.getItem("fedward-reader") ?? ""; // of this tab: others may have other readers
let view = null; // what the server said last
let shown = null; // id of the image in question
let again = false; // the reader looks at an answer of theirs
let ready = false; // the image in question has been seen, and nothing is being sent
let sending = false; // an answer is on its way, in the name of the reader
let broken = false; // the image in question cannot be shown
let turn = 0; // answers of the server that come late are for an older turn
const looked = { before: 0, since: null }; // milliseconds at the question, in a window that can be seen

// The token has done its work: a cookie keeps it. It should not stay where a shoulder or a screenshot sees it.
history.replaceState(null, "", "/");

// --- the server

function trouble(text) {
  $("trouble").textContent = text;
}

/** Say what became of the last answer; `open` while that is not known. */
function say(text, open = false) {
  $("said").textContent = text;
  $("said").classList.toggle("open", open);
}

async function send(path, body, text, button) {
  if (!ready) return;
  turn++;
  setReady(false);
  setSending(true);
  button.classList.add("chosen");
  say("");
  const slow = setTimeout(() => say("Saving…", true), SLOW);
  const { status, content } = await post(path, { annotator: reader, ...body }, trouble);
  clearTimeout(slow);
  say("");
  button.classList.remove("chosen");
  setSending(false);
  if (status === CLOSED) return location.reload();
  trouble("");
  again = false;
  if (status === 200) {
    render(content, text);
  } else {
    trouble(status === 409 ? content.message : `Not saved. ${content.message}`);
    if (content.view) render(content.view, "");
    else setReady(true);
  }
}

async function look(showing = shown ?? "") {
  if (!reader) return;
  const mine = ++turn;
  try {
    const { ok, content } = await get("/state", { annotator: reader, showing, again });
    if (mine !== turn) return;
    trouble(ok ? "" : content.message);
    if (ok) render(content);
  } catch {
    if (mine !== turn) return;
    trouble("The server is not answering. Answers so far are saved.");
    setTimeout(() => mine === turn && look(showing), AFTER_TROUBLE);
  }
}

// --- what is seen

function render(next, text) {
  view = next;
  if (view.own === null) again = false;
  const asked = view.image, several = view.together.length > 1;
  tellProgress();
  $("waiting").textContent = view.skipped ? `${view.waiting} (${view.skipped} skipped)` : view.waiting;
  $("mine").textContent = view.mine;
  tellTally(view.tally);
  const more = several ? ` and ${view.together.length - 1} more of the lesion` : "";
  const whence = asked ? `Image ${nameOf(asked.sample_id)}${more}` : "";
  $("facts").replaceChildren(...(view.facts ?? []).map(fact));
  $("facts").hidden = !view.facts?.length;
  notice();
  const question = asked && `${reader}: ${asked.sample_id} ${view.seen}`;
  findings.begin(question, view.own);
  remarks.begin(question, view.remark);
  for (const button of others) button.setAttribute("aria-pressed", String(button.dataset.kind === view.own));
  if (text !== undefined) say(text);
  tellUndo(view.last);
  show(asked ? asked.sample_id : null, several);
  $("about").textContent = whence + slices.about();
}

/** Show how far the reader is: by their own answers where the bar says so, otherwise by those of all readers. */
function tellProgress() {
  const own = "own" in $("bar").dataset;
  const [done, all] = own ? [view.mine, view.mine + view.waiting] : [view.tally.decided, view.tally.total];
  $("bar").max = Math.max(all, 1);
  $("bar").value = done;
  $("count").textContent = `${done} of ${all}${own ? " by you" : ""}`;
}

/** Show what all readers have decided: a dash where the numbers would tell checks from questions. */
function tellTally(tally) {
  $("undecidable").textContent = tally ? tally.undecidable : "–";
  if (!$("final")) return;
  $("final").textContent = tally ? `${tally.decided} of ${tally.total}` : "–";
  const kappa = tally && tally.kappa !== null ? `, κ ${tally.kappa.toFixed(2)}` : "";
  $("agreement").textContent = tally?.read_twice ? `${tally.unanimous} of ${tally.read_twice}${kappa}` : "–";
  $("disputed").textContent = tally ? tally.disputed : "–";
  findings.tellAgreement(tally?.kappas ?? {}, titleOf);
}

/** Say what Undo does: which answer about which image it takes back, and what comes of it. */
function tellUndo(last) {
  let text = "Undo", title = "There is no answer to take back.";
  if (last) {
    const returns = last.kind !== "skip" && last.before !== null;
    text = `Undo ${undone(last)}${returns ? `, back to “${titleOf(last.before)}”` : ""}`;
    title = `${text}${last.shown_again ? ", and show the image again" : ""}.`;
  }
  $("undo").title = title;
  $("undo").querySelector("span").textContent = text;
}

/** Return what Undo takes back, in words. */
function undone({ kind, text, sample_id: id }) {
  return kind === "skip" ? `the skip of ${nameOf(id)}` : `“${titleOf(text)}” for ${nameOf(id)}`;
}

function fact([name, value]) {
  const group = document.createElement("div");
  const part = (tag, text) => Object.assign(document.createElement(tag), { textContent: text });
  group.append(part("dt", name), part("dd", value));
  return group;
}

function notice() {
  const texts = [];
  if (view.adjudicates) texts.push("Readers differ here. Your answer decides.");
  if (view.own !== null) texts.push(`You said: ${titleOf(view.own)}. Another answer replaces it.`);
  $("notice").textContent = texts.join(" ");
  $("back").hidden = view.own === null;
}

function show(id, several) {
  const which = findings.several ? " Tick all, then send." : "";
  $("question").textContent =
    id === null ? "Nothing is waiting for you" : `What does this ${several ? "lesion" : "image"} show?${which}`;
  if (id === null) {
    const { decided, total } = view.tally;
    const all = decided === total ? "All images are done." : "You have answered all that waits for you.";
    const done = total ? `${all} Thank you.` : "No images have been asked for yet.";
    explain(`${done} New ones appear here by themselves. ${view.own_agreement}`);
  }
  strip.fill(id === null ? [] : view.group, view.together, view.more, turnTo);
  strip.mark(viewer.current());
  if (id !== null && id === shown && !broken) return setReady(!$("image").hidden);
  shown = id;
  beside.begin(id, view.group, view.together);
  Object.assign(looked, { before: 0, since: document.hidden ? null : performance.now() });
  if (id !== null) explain("");
  slices.begin(view.slice, put);
  put(id);
}

/** Show an image of the group: beside the one in question, or in its place. */
function turnTo(id) {
  if (beside.isOpen() && id !== shown) beside.choose(id);
  else put(id);
}

/** Put the image in question, or another one of its group, on the stage; of the `sameVolume`, in the same window. */
function put(id, sameVolume = false) {
  broken = false;
  let came = false;
  const calls = {
    seen() {
      came = true;
      explain("");
      setTimeout(() => id === viewer.current() && !sending && setReady(true), GLANCE);
      slices.came();
    },
    redrawn() {
      explain("");
    },
    failed() {
      came = true;
      broken = true;
      explain("This image cannot be shown. Skip it, or choose “Unusable”, and tell your IT its number.");
      setReady(true);
      slices.came();
    },
    late() {
      explain("The image is not loading. This page tries again by itself.");
    },
    wheel: slices.known() ? slices.scroll : null,
  };
  viewer.show(id, calls, sameVolume);
  strip.mark(id);
  setReady(id === null);
  setTimeout(() => {
    const waits = id !== null && id === viewer.current() && !came && !sending;
    if (waits && !$("empty").textContent) explain("Loading the image…");
  }, SLOW);
}

function explain(text) {
  $("empty").textContent = text;
  $("empty").hidden = !text;
}

function setReady(value) {
  ready = value;
  const aside = shown !== null && !view.together.includes(viewer.current());
  const open = ready && shown !== null && !aside;
  $("aside").hidden = !aside;
  $("aside").textContent = slices.known() ? slices.away() : "Not the image in question. Back to it";
  for (const button of choices) button.setAttribute("aria-disabled", !open || broken);
  findings.setOpen(open && !broken);
  remarks.setOpen(open);
  for (const button of [...others, $("skip")]) button.setAttribute("aria-disabled", !open);
  $("undo").setAttribute("aria-disabled", !ready || !view?.last);
}

/** Keep the reader, and ask before the page is left, until the server has said what became of the answer. */
function setSending(value) {
  sending = value;
  for (const name of ["reader", "own"]) $(name).setAttribute("aria-disabled", sending);
}

window.addEventListener("beforeunload", (event) => {
  if (sending) event.preventDefault();
});

// --- answers

function seconds() {
  const now = looked.since === null ? 0 : performance.now() - looked.since;
  return Math.round((looked.before + now) / 100) / 10;
}

function answer(button, kind, label, text) {
  if (button.getAttribute("aria-disabled") === "true") return;
  const remark = remarks.remark();
  const about = { sample_id: shown, seen: view.seen, again: view.own !== null };
  const words = `${text}${remarks.worded(remark)}.`;
  send("/answer", { ...about, kind, label, remark, seconds: seconds() }, words, button);
}

function undo() {
  if (!view?.last) return;
  const text = `Taken back: ${undone(view.last)}.`;
  send("/undo", { answer: view.last.answer }, text, $("undo"));
}

function label(button, text) {
  answer(button, "label", text, `Saved: ${titleOf(text)}`);
}

function tick(button) {
  if (button.getAttribute("aria-disabled") === "true") return;
  findings.tick(button);
  say("");
}

function sendTicked() {
  if (findings.ticked()) label($("send"), findings.ticked());
  else if (ready && shown !== null) say("Tick what it shows, or “None of these”.", true);
}

for (const button of choices) {
  button.addEventListener("click", () => (findings.several ? tick(button) : label(button, button.dataset.label)));
}
$("send")?.addEventListener("click", sendTicked);
for (const button of others) {
  const { kind } = button.dataset;
  button.addEventListener("click", () => answer(button, kind, null, `Saved: ${kind}`));
}
$("skip").addEventListener("click", () => answer($("skip"), "skip", null, "Skipped; it comes again at the end"));
$("undo").addEventListener("click", undo);

function listGiven() {
  if (sending || !reader) return;
  given.open(reader, titleOf, (id) => {
    again = true;
    look(id);
  });
}

$("own").addEventListener("click", listGiven);
$("back").addEventListener("click", () => {
  again = false;
  $("stage").focus();
  look("");
});
$("aside").addEventListener("click", () => {
  $("stage").focus();
  if (slices.known()) slices.back();
  else put(shown);
});

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
  say("");
  again = false;
  shown = null; // the time at the image begins again
  setReady(false);
  greet();
  $("stage").focus();
  look("");
});

// --- keys

$("help").addEventListener("click", () => $("keys").showModal());
$("shortcuts").checked = localStorage.getItem("fedward-shortcuts") !== "off";
$("shortcuts").addEventListener("change", (event) => {
  localStorage.setItem("fedward-shortcuts", event.target.checked ? "on" : "off");
});

function showExamples() {
  examples.open(titles);
}

$("show-examples")?.addEventListener("click", showExamples);

function besides(places) {
  if (beside.isOpen()) return beside.step(places);
  const id = strip.beside(viewer.current(), places);
  if (id !== undefined) put(id);
}

const STEP = 60; // pixels an arrow key moves the image
const commands = {
  c: () => $("cannot").click(),
  x: () => $("unusable").click(),
  n: () => $("none").click(),
  s: () => $("skip").click(),
  q: () => remarks.toggle("unsure"),
  d: remarks.discuss,
  b: beside.toggle,
  e: showExamples,
  u: undo,
  l: listGiven,
  w: grey.toggle,
  f: viewer.fit,
  ",": () => besides(-1),
  ".": () => besides(1),
  "+": () => viewer.zoom(1.5),
  "=": () => viewer.zoom(1.5),
  "-": () => viewer.zoom(1 / 1.5),
  "?": () => $("keys").showModal(),
};
const arrows = { ArrowLeft: [STEP, 0], ArrowRight: [-STEP, 0], ArrowUp: [0, STEP], ArrowDown: [0, -STEP] };

document.addEventListener("keydown", (event) => {
  if (document.querySelector("dialog[open]") || event.altKey || event.target.matches("input[type=text]")) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (event.ctrlKey || event.metaKey) {
    if (key === "z" && !event.repeat) undo();
    return;
  }
  if (arrows[key] && viewer.zoomed()) {
    viewer.move(...arrows[key]);
    return event.preventDefault();
  }
  if (slices.press(key)) return event.preventDefault();
  if (!$("shortcuts").checked) return;
  if (key === "Enter" && findings.several && findings.sends(event.target)) {
    event.preventDefault();
    if (!event.repeat) sendTicked();
    return;
  }
  const choice = choices.find((button) => button.dataset.key === key);
  const repeatable = "+=-,.".includes(key);
  if ((!choice && !commands[key]) || (event.repeat && !repeatable)) return;
  event.preventDefault();
  if (choice) choice.click();
  else commands[key]();
});

// --- begin, and look again when another tab or the site's job may have changed something

document.addEventListener("visibilitychange", () => {
  const now = performance.now();
  if (document.hidden && looked.since !== null) {
    Object.assign(looked, { before: looked.before + now - looked.since, since: null });
  } else if (!document.hidden) {
    looked.since ??= now;
    if (ready) look();
  }
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
