// Says how many classes are below the edge of the panel, where it scrolls.

const panel = document.querySelector(".panel"), foot = panel.querySelector(".foot");
const choices = [...panel.querySelectorAll(".choice")];
const hint = document.getElementById("below");
const CUT = 6; // pixels that may be out of sight

/** Return how far a button is below the edge, in pixels. */
function depth(button) {
  return button.getBoundingClientRect().bottom - Math.min(foot.getBoundingClientRect().top, window.innerHeight);
}

function tell() {
  const hidden = choices.filter((button) => depth(button) > CUT).length;
  hint.hidden = hidden === 0;
  hint.textContent = `↓ ${hidden} more`;
  hint.setAttribute("aria-label", `${hidden} more ${hidden === 1 ? "answer" : "answers"} below`);
}

hint.addEventListener("click", () => {
  for (const scrolls of [panel, window]) scrolls.scrollBy(0, Math.max(0, depth(choices.at(-1)) + CUT));
});
for (const scrolls of [panel, document]) scrolls.addEventListener("scroll", tell, { passive: true });
const resized = new ResizeObserver(tell);
for (const part of [panel, foot, panel.querySelector(".choices")]) resized.observe(part);
