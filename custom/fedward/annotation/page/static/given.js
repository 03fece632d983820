// The list of the reader's own answers.

import { worded } from "./remark.js";
import { get, imageAddress, nameOf } from "./server.js";

const $ = (id) => document.getElementById(id);
const SMALL = { wide: 64, high: 64 }; // pixels
const filters = [...document.querySelectorAll("#given-which button")];
let list = () => {}; // lists all answers, or those with a remark of a kind

/** Open the list of a reader; `titleOf` words an answer, `choose` is called with the image of the one that is chosen. */
export async function open(annotator, titleOf, choose) {
  const { ok, content } = await get("/given", { annotator }).catch(() => ({ ok: false, content: {} }));
  const answers = ok ? content : [];
  const none = ok ? "You have not answered yet." : content.message ?? "The server is not answering.";
  list = (which) => {
    const chosen = answers.filter((each) => which === "all" || each.remark[which]);
    $("given-none").textContent = answers.length ? "None of your answers." : none;
    $("given-none").hidden = chosen.length > 0;
    $("given-list").replaceChildren(...chosen.map((each) => row(each, titleOf, choose)));
    for (const button of filters) button.setAttribute("aria-pressed", String(button.dataset.which === which));
  };
  list("all");
  $("given-which").hidden = answers.length === 0;
  $("given-pace").textContent = pace(answers);
  $("given").showModal();
  $("given-list").querySelector("button")?.focus();
}

for (const button of filters) button.addEventListener("click", () => list(button.dataset.which));

/** Say how many answers there are, and how long the reader looked at half of the images at most. */
function pace(answers) {
  const seconds = answers.map((each) => each.seconds).filter((each) => each !== null).sort((a, b) => a - b);
  if (!seconds.length) return "";
  const answered = answers.length === 1 ? "1 answer" : `${answers.length} answers`;
  return `${answered}, ${seconds[seconds.length >> 1].toFixed(1)} seconds each (median)`;
}

function row(given, titleOf, choose) {
  const part = (name, text) => Object.assign(document.createElement(name), { textContent: text });
  const small = document.createElement("img");
  Object.assign(small, { alt: "", loading: "lazy", src: imageAddress(given.sample_id, SMALL) });
  const words = document.createElement("span");
  const when = new Date(given.time).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
  words.append(part("b", titleOf(given.text) + worded(given.remark)));
  if (given.remark.comment) words.append(part("span", given.remark.comment));
  words.append(part("span", `${nameOf(given.sample_id)} · ${when}`));
  const button = document.createElement("button");
  button.type = "button";
  button.append(small, words);
  button.addEventListener("click", () => {
    $("given").close();
    choose(given.sample_id);
  });
  const item = document.createElement("li");
  item.append(button);
  return item;
}
