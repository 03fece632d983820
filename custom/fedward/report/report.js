"use strict";

// Sorting: each heading becomes a button. Rows of totals stay at the end. The page reads the same without any of it.
const number = (cell) => {
  const found = cell.textContent.replaceAll(",", "").match(/[-+−]?\d+(\.\d+)?/);
  return found ? Number(found[0].replace("−", "-")) : NaN;
};

const compare = (column, text, down) => (a, b) => {
  const [left, right] = [a.cells[column], b.cells[column]];
  if (text) return (down ? -1 : 1) * left.textContent.localeCompare(right.textContent, "en", { numeric: true });
  const [x, y] = [number(left), number(right)];
  if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
  return down ? y - x : x - y;
};

const sort = (table, heading) => {
  const text = heading.classList.contains("text");
  const was = heading.getAttribute("aria-sort");
  const down = was ? was === "ascending" : !text;
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", down ? "descending" : "ascending");
  const rows = [...table.tBodies[0].rows];
  const totals = rows.filter((row) => row.classList.contains("total"));
  const others = rows.filter((row) => !row.classList.contains("total"));
  table.tBodies[0].append(...others.sort(compare(heading.cellIndex, text, down)), ...totals);
};

for (const table of document.querySelectorAll("table:not(.matrix)")) {
  if (!table.tHead || table.tBodies[0].rows.length < 3) continue;
  for (const heading of table.tHead.rows[0].cells) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    button.addEventListener("click", () => sort(table, heading));
    heading.append(button);
  }
}

// What must be scrolled sideways can be reached with the keyboard.
const reachable = () => {
  for (const box of document.querySelectorAll(".scroll, .wide")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
};
reachable();
addEventListener("resize", reachable);

// Values under the pointer: of each line of a figure at the nearest round.
const tip = document.createElement("div");
tip.className = "tip";
tip.hidden = true;
document.body.append(tip);

const show = (svg, told, event) => {
  const box = svg.getBoundingClientRect();
  const at = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
  const [left, right, first, last] = told.axis;
  const wanted = first + ((at - left) / (right - left)) * (last - first);
  const place = told.x.reduce((best, x, i) => (Math.abs(x - wanted) < Math.abs(told.x[best] - wanted) ? i : best), 0);
  const values = told.lines.filter(([, line]) => line[place] !== null);
  tip.textContent = [`${told.name} ${told.x[place]}`, ...values.map(([name, line]) => `${name}: ${line[place].toFixed(3)}`)].join("\n");
  tip.hidden = false;
  const { offsetWidth: width, offsetHeight: height } = tip;
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
  tip.style.top = `${Math.max(4, Math.min(event.clientY + 14, innerHeight - height - 8))}px`;
};

for (const svg of document.querySelectorAll("svg[data-values]")) {
  const told = JSON.parse(svg.dataset.values);
  svg.addEventListener("pointermove", (event) => show(svg, told, event));
  svg.addEventListener("pointerleave", () => { tip.hidden = true; });
}

// Sections are folded: one that a link leads to is opened, and on paper all but long tables.
const openTarget = () => {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const fold = target && target.closest("details");
  if (fold) {
    fold.open = true;
    target.scrollIntoView();
  }
};
addEventListener("hashchange", openTarget);
openTarget();
let folded = [];
addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("details:not([open], .screen)")];
  for (const fold of folded) fold.open = true;
});
addEventListener("afterprint", () => {
  for (const fold of folded) fold.open = false;
});
