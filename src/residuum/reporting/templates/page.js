"use strict";
/* Buttons, sorting, gallery, theme and printing. */
const panelPlaces = DATA.panels.map(() => html("figure", { class: "panel" }));
const tradePlaces = DATA.tradeoff.map(() => html("figure", { class: "panel" }));
document.getElementById("panels").append(...panelPlaces);
document.getElementById("tradeoffs").append(...tradePlaces);

function draw() {
  const measure = measureOf();
  document.getElementById("measure-meaning").textContent = measure.meaning;
  for (const button of document.querySelectorAll("[data-measure]")) button.setAttribute("aria-pressed", String(button.dataset.measure === state.measure));
  for (const button of document.querySelectorAll("[data-scale]")) {
    button.setAttribute("aria-pressed", String(button.dataset.scale === (measure.ratio ? state.scale : "linear")));
    button.disabled = button.dataset.scale === "log" && !measure.ratio;
  }
  for (const button of document.querySelectorAll(".chip")) button.setAttribute("aria-pressed", String(state.shown.has(button.dataset.row)));
  DATA.panels.forEach((panel, i) => keepOpen(panelPlaces[i], () => drawCurves(panelPlaces[i], panel, DATA.panels.filter((p) => p.perturbation === panel.perturbation))));
  DATA.tradeoff.forEach((study, i) => keepOpen(tradePlaces[i], () => drawTradeOff(tradePlaces[i], study)));
}
function keepOpen(place, redraw) {
  const open = place.querySelector("details")?.open;
  redraw();
  if (open) place.querySelector("details").open = true;
}
function onPress(selector, act) {
  for (const button of document.querySelectorAll(selector)) button.addEventListener("click", () => { act(button.dataset); draw(); });
}
onPress("[data-measure]", (d) => { state.measure = d.measure; });
onPress("[data-scale]", (d) => { state.scale = d.scale; });
onPress(".chip", (d) => { if (!state.shown.delete(d.row)) state.shown.add(d.row); });
onPress("[data-all]", (d) => { state.shown = new Set({ on: Object.keys(DATA.styles), off: [], first: DATA.shown }[d.all]); });

const seedPick = document.getElementById("seeds");
for (const seed of new Set(DATA.panels.flatMap((p) => p.seeds))) seedPick.append(html("option", { value: seed }, seed));
seedPick.addEventListener("change", () => { state.seed = seedPick.value; draw(); });

/* Sorting: numbers by value with missing ones last, names by text; pressing again turns the order round. */
function sortTable(table, head, key) {
  const column = [...head.parentNode.children].indexOf(head);
  const down = head.getAttribute("aria-sort") === "ascending";
  for (const other of head.parentNode.children) other.setAttribute("aria-sort", "none");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const sign = down ? -1 : 1, rows = [...table.tBodies[0].rows];
  const read = (row) => { const cell = row.cells[column]; return "text" in cell.dataset ? cell.dataset.value : cell.dataset.value === "" ? null : cell.dataset.value === "inf" ? Infinity : Number(cell.dataset.value); };
  rows.sort((a, b) => {
    const [u, v] = [read(a), read(b)];
    if (u === null || v === null) return (u === null) - (v === null);
    return sign * (typeof u === "string" ? u.localeCompare(v) : u === v ? 0 : u < v ? -1 : 1);
  });
  table.tBodies[0].append(...rows);
}
const table = document.getElementById("results-table");
for (const button of table.querySelectorAll("thead button")) button.addEventListener("click", () => sortTable(table, button.closest("th"), button.dataset.key));

/* Gallery: the answers of the chosen model below the same pictures. */
function showGallery(place) {
  const pick = (name) => place.querySelector(`[data-pick="${name}"]`).value;
  const [row, seed, own] = [pick("row"), pick("seed"), DATA.gallery[Number(place.dataset.gallery)]];
  for (const cards of place.querySelectorAll(".cards[data-seed]")) {
    cards.hidden = cards.dataset.seed !== seed;
    cards.querySelectorAll(".card").forEach((card, i) => card.querySelectorAll(".strip").forEach((strip, k) => {
      const entry = own.seeds[cards.dataset.seed][i][k], counted = entry.counted[row];
      const marks = [...(entry.right[row] || "")].map((m, j) => html("span", { class: `tick ${m === "1" ? "yes" : "no"}${m === "1" && entry.reference[j] === "0" ? " only" : ""}` }, m === "1" ? "✓" : "✗"));
      strip.querySelector('[data-who="model"]').replaceChildren(...marks);
      strip.querySelector('[data-name="model"]').textContent = row;
      ["model", "reference"].forEach((who, side) => { strip.querySelector(`[data-count="${who}"]`).textContent = counted ? counted[side] : ""; });
    }));
  }
}
for (const place of document.querySelectorAll(".gallery")) for (const select of place.querySelectorAll("select")) select.addEventListener("change", () => showGallery(place));

/* Search: rows of a table whose first cell holds the words. */
for (const input of document.querySelectorAll("[data-search]")) input.addEventListener("input", () => {
  const rows = [...document.getElementById(input.dataset.search).tBodies[0].rows], words = input.value.toLowerCase();
  for (const row of rows) row.hidden = !row.cells[0].textContent.toLowerCase().includes(words);
  document.querySelector(`[data-found="${input.dataset.search}"]`).textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} samples`;
});

document.getElementById("theme").addEventListener("click", () => {
  const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
});

let before = [];
addEventListener("beforeprint", () => { before = [...document.querySelectorAll("details:not(.numbers):not([open])")]; for (const d of before) d.open = true; });
addEventListener("afterprint", () => { for (const d of before) d.open = false; });

let last = 0;
addEventListener("resize", () => { if (innerWidth !== last) { last = innerWidth; draw(); } });
draw();
