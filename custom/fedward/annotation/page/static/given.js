// The list of the reader's own answers.

import { get, imageAddress, nameOf } from "./server.js";

const $ = (id) => document.getElementById(id);
const SMALL = 64; // pixels of the longer side

/** Open the list of a reader; `titleOf` words an answer, `choose` is called with the image of the one that is chosen. */
export async function open(annotator, titleOf, choose) {
  const { ok, content } = await get("/given", { annotator }).catch(() => ({ ok: false, content: {} }));
  $("given-none").textContent = ok ? "You have not answered yet." : content.message ?? "The program does not answer.";
  $("given-none").hidden = ok && content.length > 0;
  $("given-list").replaceChildren(...(ok ? content.map((each) => row(each, titleOf, choose)) : []));
  $("given").showModal();
}

function row(given, titleOf, choose) {
  const part = (name, text) => Object.assign(document.createElement(name), { textContent: text });
  const small = document.createElement("img");
  Object.assign(small, { alt: "", loading: "lazy", src: imageAddress(given.sample_id, { longest: SMALL }) });
  const words = document.createElement("span");
  const when = new Date(given.time).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
  words.append(part("b", titleOf(given.text)), part("span", `${nameOf(given.sample_id)} · ${when}`));
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
