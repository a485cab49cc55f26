"use strict";
/* Sorting, gallery, search, theme and printing: everything else works without a script. */
const GALLERIES = JSON.parse(document.getElementById("data").textContent);

/* Numbers by value with missing ones last, names by text; pressing again turns the order round. */
function sortTable(table, head) {
  const column = [...head.parentNode.children].indexOf(head), down = head.getAttribute("aria-sort") === "ascending";
  for (const other of head.parentNode.children) other.setAttribute("aria-sort", "none");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const read = (row) => { const { text, value } = row.cells[column].dataset; return text !== undefined ? value : value === "" ? null : value === "inf" ? Infinity : Number(value); };
  const order = [...table.tBodies[0].rows].sort((a, b) => {
    const [u, v] = [read(a), read(b)];
    if (u === null || v === null) return (u === null) - (v === null);
    return (down ? -1 : 1) * (typeof u === "string" ? u.localeCompare(v) : u === v ? 0 : u < v ? -1 : 1);
  });
  table.tBodies[0].append(...order);
}
for (const button of document.querySelectorAll("#results-table thead button")) button.addEventListener("click", () => sortTable(button.closest("table"), button.closest("th")));

/* Gallery: the answers of the selected model below the same pictures; names become text nodes, never markup. */
function showGallery(place, row) {
  place.querySelectorAll(".card").forEach((card, i) => card.querySelectorAll(".strip").forEach((strip, k) => {
    const entry = GALLERIES[Number(place.dataset.gallery)][i][k], counted = entry.counted[row];
    const marks = [...(entry.right[row] || "")].map((mark, j) => {
      const span = document.createElement("span");
      span.className = `tick ${mark === "1" ? "yes" : "no"}${mark === "1" && entry.reference[j] === "0" ? " only" : ""}`;
      span.textContent = mark === "1" ? "✓" : "✗";
      return span;
    });
    strip.querySelector('[data-who="model"]').replaceChildren(...marks);
    strip.querySelector('[data-name="model"]').textContent = row;
    ["model", "reference"].forEach((who, side) => { strip.querySelector(`[data-count="${who}"]`).textContent = counted ? counted[side] : ""; });
  }));
}
for (const place of document.querySelectorAll(".gallery")) place.querySelector("select").addEventListener("change", (event) => showGallery(place, event.target.value));

/* Search: rows of a table whose first cell holds the words. */
for (const input of document.querySelectorAll("[data-search]")) input.addEventListener("input", () => {
  const rows = [...document.getElementById(input.dataset.search).tBodies[0].rows], words = input.value.toLowerCase();
  for (const row of rows) row.hidden = !row.cells[0].textContent.toLowerCase().includes(words);
  document.querySelector(`[data-found="${input.dataset.search}"]`).textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} samples`;
});

document.getElementById("theme").addEventListener("click", () => {
  const { dataset } = document.documentElement;
  const dark = dataset.theme ? dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  dataset.theme = dark ? "light" : "dark";
});

let closed = [];
addEventListener("beforeprint", () => { closed = [...document.querySelectorAll(".fold:not([open])")]; for (const part of closed) part.open = true; });
addEventListener("afterprint", () => { for (const part of closed) part.open = false; });
