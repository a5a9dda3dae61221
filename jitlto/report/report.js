"use strict";
const rows = [...document.querySelectorAll("#table tbody tr")], box = document.getElementById("filter");
const found = document.getElementById("found"), none = document.getElementById("none");
const rowOf = link => document.getElementById(link.hash.slice(1));

// The filter: every term must stand in the fragment's key; NAME=VALUE must be one of its parameters, whole.
const known = rows.map(row => {
  const key = row.dataset.key.toLowerCase();
  return { row, key, parameters: new Set(row.dataset.key.replace(/^[^[]*\[|\]$/g, "").split(",").map(p => decode(p).toLowerCase())) };
});
function decode(text) { try { return decodeURIComponent(text); } catch { return text; } }
const cells = [...document.querySelectorAll(".grid a")].map(link => ({ cell: link.parentElement, row: rowOf(link) }));
function filter() {
  const terms = [...box.value.toLowerCase().matchAll(/"([^"]*)"?|\S+/g)].map(m => m[1] ?? m[0]).filter(Boolean);
  let count = 0, size = 0, seconds = 0;
  for (const { row, key, parameters } of known) {
    const shown = terms.every(term => parameters.has(term) || (!/^[^/[\]]+=/.test(term) && key.includes(term)));
    if (row.hidden === shown) row.hidden = !shown;
    if (shown) { count++; size += +row.dataset.size; seconds += +row.dataset.seconds; }
  }
  for (const { cell, row } of cells) cell.classList.toggle("out", row.hidden);
  found.textContent = terms.length ? `${count} of ${rows.length}: ${bytes(size)}${seconds ? `, ${seconds.toFixed(2)} s` : ""}` : "";
  none.hidden = count > 0;
}
function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (n >= 999.5 && unit < 4) { n /= 1024; unit++; }
  return `${unit && n < 99.95 ? n.toFixed(1) : Math.round(n)} ${units[unit]}`;
}
let due = 0;
box.addEventListener("input", () => { cancelAnimationFrame(due); due = requestAnimationFrame(filter); });
document.addEventListener("click", event => {
  const link = event.target.closest("[data-q]");
  if (link) { box.value = link.dataset.q; filter(); }
});

// A link to a fragment shows and opens it, whatever the filter says.
function reveal() {
  const row = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
  for (const old of document.querySelectorAll("tr.target")) old.classList.remove("target");
  if (!row) return;
  for (let up = row; up; up = up.parentElement) if (up.localName === "details") up.open = true;
  if (row.localName !== "tr") return;
  if (row.hidden) { box.value = ""; filter(); }
  const details = row.querySelector("details");
  if (details) details.open = true;
  row.classList.add("target");
  row.scrollIntoView({ block: "center" });
  row.querySelector("summary")?.focus({ preventScroll: true });
}
addEventListener("hashchange", reveal);
reveal();
filter();

// A click on a column's head sorts by it, another one the other way round.
for (const button of document.querySelectorAll("th button")) button.addEventListener("click", () => {
  const head = button.parentElement, body = head.closest("table").tBodies[0], by = button.dataset.by;
  const now = head.getAttribute("aria-sort"), down = now ? now === "ascending" : by !== "place";
  for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const sorted = [...body.rows].map(row => [+row.dataset[by], row]).sort((a, b) => down ? b[0] - a[0] : a[0] - b[0]);
  body.append(...sorted.map(pair => pair[1]));
});

// Grids: one stop of the tab key each, arrow keys go on from there; what is under the pointer is told below.
const fields = line => [...line.cells].filter(cell => cell.localName === "td");
for (const table of document.querySelectorAll(".grid")) {
  const spot = table.closest(".group").querySelector(".spot"), lines = table.tBodies[0].rows;
  const columns = table.tHead.querySelectorAll("[data-at]");
  table.querySelectorAll("a").forEach((link, n) => { if (n) link.tabIndex = -1; });
  const tell = event => {
    const cell = event.target.closest("td"), at = cell && columns[fields(cell.parentElement).indexOf(cell)];
    if (!at || cell.colSpan > 1) return;
    const link = cell.querySelector("a");
    spot.textContent = `${cell.parentElement.dataset.at} ${at.dataset.at}: ${link ? rowOf(link).dataset.told : cell.textContent.trim()}`;
  };
  table.addEventListener("mouseover", tell);
  table.addEventListener("focusin", tell);
  table.addEventListener("keydown", event => {
    const [down, right] = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key] ?? [0, 0];
    const cell = event.target.closest("td");
    if (!cell || !(down || right)) return;
    event.preventDefault();
    let y = cell.parentElement.sectionRowIndex, x = fields(cell.parentElement).indexOf(cell), next = null;
    do next = fields(lines[y += down] ?? { cells: [] })[x += right]; while (next && !next.querySelector("a") || !next && lines[y + down] && down);
    const link = next?.querySelector("a");
    if (!link) return;
    event.target.tabIndex = -1;
    link.tabIndex = 0;
    link.focus();
  });
}

// In the drawing of calls, the lines of the group under the pointer stand out.
for (const svg of document.querySelectorAll("figure svg")) {
  const light = name => {
    svg.classList.toggle("some", name !== undefined);
    for (const line of svg.querySelectorAll("path")) line.classList.toggle("on", line.dataset.from === name || line.dataset.to === name);
  };
  for (const group of svg.querySelectorAll("a")) {
    for (const on of ["mouseenter", "focus"]) group.addEventListener(on, () => light(group.dataset.name));
    for (const off of ["mouseleave", "blur"]) group.addEventListener(off, () => light());
  }
}
