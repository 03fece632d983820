// What a reader adds to an answer: that they are unsure, that it should be discussed, and a comment.

const $ = (id) => document.getElementById(id);
let about = null; // the question that the remark is for

/** Begin with what the reader added to an earlier answer; it stays while it is the same question. */
export function begin(question, own) {
  if (question === about) return;
  about = question;
  press("unsure", own.unsure);
  press("discuss", own.discuss);
  $("comment").value = own.comment;
}

/** Return the remark to send. */
export function remark() {
  const discuss = isPressed("discuss");
  return { unsure: isPressed("unsure"), discuss, comment: discuss ? $("comment").value : "" };
}

/** Return a remark in words, to follow an answer. */
export function worded({ unsure, discuss }) {
  return `${unsure ? ", unsure" : ""}${discuss ? ", to discuss" : ""}`;
}

export function setOpen(open) {
  for (const name of ["unsure", "discuss"]) $(name).setAttribute("aria-disabled", String(!open));
}

export function toggle(name) {
  if ($(name).getAttribute("aria-disabled") !== "true") press(name, !isPressed(name));
}

/** Mark the question for a discussion by key; the reader may type why. */
export function discuss() {
  toggle("discuss");
  if (isPressed("discuss")) $("comment").focus();
}

function isPressed(name) {
  return $(name).getAttribute("aria-pressed") === "true";
}

function press(name, on) {
  $(name).setAttribute("aria-pressed", String(on));
  if (name === "discuss") $("why").hidden = !on;
}

for (const name of ["unsure", "discuss"]) $(name).addEventListener("click", () => toggle(name));
$("comment").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" && event.key !== "Escape") return;
  event.preventDefault();
  event.stopPropagation();
  $("stage").focus();
});
