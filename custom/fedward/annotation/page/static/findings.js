// The classes of an answer as pressed buttons. Where it may name several, they are ticked first and sent together.

const SEPARATOR = "|"; // between the findings of an answer
const panel = document.querySelector(".panel");
const choices = [...panel.querySelectorAll(".choice")];
const none = choices.at(-1); // the button "none of these", where several may be ticked
const send = document.getElementById("send");

export const several = "several" in panel.dataset;
let about = null; // the question that the ticks are for
let open = false; // it may be answered

/** Return the names in an answer. */
export function named(text) {
  return several ? text.split(SEPARATOR) : [text];
}

/** Begin with what the reader said of a question; ticks stay while it is the same one. */
export function begin(question, own) {
  const names = named(several && question === about ? ticked() : own ?? "");
  about = question;
  for (const button of choices) mark(button, names.includes(button.dataset.label));
  setOpen(open);
}

export function tick(button) {
  const on = !isTicked(button);
  for (const other of choices) if (button === none || other === none) mark(other, false);
  mark(button, on);
  setOpen(open);
}

/** Return the answer that is ticked, empty for none. */
export function ticked() {
  return choices.filter(isTicked).map((button) => button.dataset.label).join(SEPARATOR);
}

export function setOpen(value) {
  open = value;
  send?.setAttribute("aria-disabled", String(!open || !ticked()));
}

/** Return whether Enter means "send" there: not on a button that does something else. */
export function sends(target) {
  return !target.closest("button, input:not([type=range]), summary") || choices.includes(target);
}

/** Show kappa by finding, where several readers are wanted. */
export function tellAgreement(kappas, titleOf) {
  const part = (tag, text) => Object.assign(document.createElement(tag), { textContent: text });
  const rows = Object.entries(kappas).map(([name, kappa]) => {
    const row = document.createElement("div");
    row.append(part("dt", titleOf(name)), part("dd", kappa === null ? "–" : `κ ${kappa.toFixed(2)}`));
    return row;
  });
  document.getElementById("kappas")?.replaceChildren(...rows);
}

function isTicked(button) {
  return button.getAttribute("aria-pressed") === "true";
}

function mark(button, on) {
  button.setAttribute("aria-pressed", String(on));
}
