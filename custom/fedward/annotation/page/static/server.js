// Talks to the program that serves the page.

const secret = kept("form-secret");
const imageSecret = kept("image-secret");
export const CLOSED = 410; // the page takes no answers any more; loaded anew, it says why
const LONGEST_WAIT = 5_000; // milliseconds between attempts to send

/** Return what came with the full address, or came in an earlier tab. Unlike a cookie, it is for this port alone. */
function kept(name) {
  const brought = document.querySelector(`meta[name=${name}]`)?.content;
  if (brought) localStorage.setItem(`fedward-${name}`, brought);
  return brought ?? localStorage.getItem(`fedward-${name}`) ?? "";
}

function newKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Return the address of an image, `how` it is to be drawn. */
export function imageAddress(id, how = {}) {
  return `/image?${new URLSearchParams({ id, ...how, secret: imageSecret })}`;
}

/** Return an image's name without its folders, whose names may be those of classes. */
export function nameOf(id) {
  return id.split("/").pop();
}

/** Return content of an address and whether all is well; throws where the server does not answer. */
export async function get(path, words) {
  const answer = await fetch(`${path}?${new URLSearchParams(words)}`, { headers: { "X-Form-Secret": secret } });
  if (answer.status === CLOSED) location.reload();
  return { ok: answer.ok, content: await answer.json() };
}

/** Send a message until it is stored or refused; it carries a key, so arriving twice does no harm. */
export async function post(path, body, trouble) {
  const message = JSON.stringify({ key: newKey(), ...body });
  for (let wait = 500; ; wait = Math.min(2 * wait, LONGEST_WAIT)) {
    try {
      const answer = await fetch(path, { method: "POST", body: message, headers: { "X-Form-Secret": secret } });
      if (answer.status < 500) return { status: answer.status, content: await answer.json() };
      trouble(`Not saved yet, trying again. ${(await answer.json()).message}`);
    } catch {
      trouble("Not saved yet: the server is not answering. Leave this page open; it tries again by itself.");
    }
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}
