"use strict";
const body = document.querySelector("#table tbody"), box = document.getElementById("filter"), more = document.getElementById("more");
const found = document.getElementById("found"), none = document.getElementById("none");
// Of many fragments, so many rows are made, and as many again when the last of them comes into view.
const STEP = 200;
let known = [], byId = new Map(), hits = [], limit = STEP;
const rowOf = link => row(byId.get(link.hash.slice(1)));

// A long list comes compressed, as key, number, sizes, compile time and HTML of each fragment.
async function read() {
  const data = document.getElementById("rows");
  if (!data) return [...body.rows].map(row => ({ row, key: row.dataset.key, ...numbers(row.dataset) }));
  return JSON.parse(await inflate(data)).map(([key, place, ltoir, ptx, size, seconds, html]) => ({ key, html, ...numbers({ place, ltoir, ptx, size, seconds }) }));
}
async function inflate(script) {
  const packed = Uint8Array.from(atob(script.textContent), c => c.charCodeAt(0));
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
}
function numbers({ place, ltoir, ptx, size, seconds }) { return { place: +place, ltoir: +ltoir, ptx: +ptx, size: +size, seconds: +seconds }; }
function row(item) {
  if (item && !item.row) {
    const made = document.createElement("template");
    made.innerHTML = item.html;
    item.row = made.content.firstElementChild;
  }
  return item?.row;
}

// The filter: every term must stand in the fragment's key; NAME=VALUE must be one of its parameters, whole.
const parametersOf = key => new Set(key.replace(/^[^[]*\[|\]$/g, "").split(",").map(p => decode(p).toLowerCase()));
function decode(text) { try { return decodeURIComponent(text); } catch { return text; } }
let cells = [];
const cellOf = link => ({ cell: link.parentElement, item: byId.get(link.hash.slice(1)) });
function filter() {
  const terms = [...box.value.toLowerCase().matchAll(/"([^"]*)"?|\S+/g)].map(m => m[1] ?? m[0]).filter(Boolean);
  let size = 0, seconds = 0;
  hits = known.filter(item => {
    const { lower } = item, parameters = terms.length && (item.parameters ??= parametersOf(item.key));
    item.out = !terms.every(term => parameters.has(term) || (!/^[^/[\]]+=/.test(term) && lower.includes(term)));
    if (!item.out) { size += item.size; seconds += item.seconds; }
    return !item.out;
  });
  for (const { cell, item } of cells) cell.classList.toggle("out", item.out);
  found.textContent = terms.length ? `${hits.length} of ${known.length}: ${bytes(size)}${seconds ? `, ${seconds.toFixed(2)} s` : ""}` : "";
  none.hidden = hits.length > 0;
  show(STEP);
}
function show(count) {
  limit = more ? count : known.length;
  const shown = hits.slice(0, limit), same = shown.length === body.rows.length && shown.every((item, n) => item.row === body.rows[n]);
  if (!same) body.replaceChildren(...shown.map(row));
  if (more) {
    more.hidden = shown.length === hits.length;
    more.textContent = `Show more of the ${hits.length - shown.length} that follow`;
  }
}
function extend() {
  body.append(...hits.slice(limit, limit + STEP).map(row));
  show(limit + STEP);
}
if (more) {
  more.addEventListener("click", extend);
  new IntersectionObserver(seen => { if (seen.some(each => each.isIntersecting)) extend(); }, { rootMargin: "500px" }).observe(more);
  addEventListener("beforeprint", () => show(hits.length));
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
  const id = location.hash.slice(1), item = byId.get(id), place = id && (row(item) ?? document.getElementById(id));
  for (const old of document.querySelectorAll("tr.target")) old.classList.remove("target");
  if (!place) return;
  if (item) {
    if (item.out) { box.value = ""; filter(); }
    if (hits.indexOf(item) >= limit) { box.value = `"${item.key}"`; filter(); }
    if (hits.indexOf(item) >= limit) show(hits.length);
  }
  for (let up = place; up; up = up.parentElement) if (up.localName === "details") up.open = true;
  if (!item) return;
  const details = place.querySelector("details");
  if (details) details.open = true;
  place.classList.add("target");
  place.scrollIntoView({ block: "center" });
  place.querySelector("summary")?.focus({ preventScroll: true });
}
read().then(items => {
  known = items.map(item => ({ ...item, lower: item.key.toLowerCase() }));
  byId = new Map(known.map(item => [`f${item.place}`, item]));
  cells = [...document.querySelectorAll(".grid a")].map(cellOf);
  addEventListener("hashchange", reveal);
  filter();
  reveal();
});

// A click on a column's head sorts by it, another one the other way round.
for (const button of document.querySelectorAll("th button")) button.addEventListener("click", () => {
  const head = button.parentElement, by = button.dataset.by;
  const now = head.getAttribute("aria-sort"), down = now ? now === "ascending" : by !== "place";
  for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  known.sort((a, b) => down ? b[by] - a[by] : a[by] - b[by]);
  filter();
});

// Grids: one stop of the tab key each, arrow keys go on from there; what is under the pointer is told below.
const fields = line => [...line.cells].filter(cell => cell.localName === "td");
function wire(table) {
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

document.querySelectorAll(".grid").forEach(wire);

// A large grid is made when it is opened.
for (const details of document.querySelectorAll(".large-grid")) details.addEventListener("toggle", async () => {
  const text = await inflate(details.querySelector("script"));
  const made = document.createElement("template");
  made.innerHTML = text;
  const table = made.content.querySelector(".grid");
  details.append(made.content);
  wire(table);
  cells.push(...[...table.querySelectorAll("a")].map(cellOf));
  filter();
}, { once: true });

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
