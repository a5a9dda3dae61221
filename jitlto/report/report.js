"use strict";
const byId = id => document.getElementById(id), body = byId("rows"), box = byId("filter"), more = byId("more");
// So many rows are made, and as many again when the last of them comes into view.
const STEP = 200;
let symbols = [], known = [], hits = [];

async function read() {
  const packed = Uint8Array.from(atob(byId("data").textContent), c => c.charCodeAt(0));
  const text = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
  const { rows, symbols } = JSON.parse(text);
  return [symbols, rows.map(item => ({ ...item, lower: [item.name, ...item.parameters].map(each => each.toLowerCase()) }))];
}

// All that a database says becomes text, never markup.
function make(tag, ...content) {
  const made = document.createElement(tag);
  made.append(...content);
  return made;
}
function row(item) {
  const told = make("dl"), tell = (what, lines) => { if (lines.length) told.append(make("dt", what), ...lines.map(line => make("dd", make("code", line)))); };
  tell("Kernel", item.kernel ? [`${item.kernel}`, `(${item.signature.join(", ")})`] : []);
  tell("Calls", item.requires.map(place => symbols[place]));
  tell("Provides", item.provides.map(place => symbols[place]));
  tell("Images", item.images);
  const head = make("th", make("details", make("summary", `${item.name} ${item.parameters.join(" ")}`), told));
  const size = make("td", bytes(item.size)), line = make("tr", head, size);
  head.scope = "row";
  size.className = "number";
  line.id = `f${item.number}`;
  return line;
}
function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (n >= 999.5 && unit < 4) { n /= 1024; unit++; }
  return `${unit && n < 99.95 ? n.toFixed(1) : Math.round(n)} ${units[unit]}`;
}

// Every term must stand in the fragment's key; NAME=VALUE must be one of its parameters, whole.
function filter() {
  const terms = [...box.value.toLowerCase().matchAll(/"([^"]*)"?|\S+/g)].map(m => m[1] ?? m[0]).filter(Boolean);
  const holds = (item, term) => item.lower.includes(term) || (!term.includes("=") && item.lower.some(text => text.includes(term)));
  hits = known.filter(item => terms.every(term => holds(item, term)));
  byId("found").textContent = `${hits.length} of ${known.length}: ${bytes(hits.reduce((sum, item) => sum + item.size, 0))}`;
  body.replaceChildren();
  extend(STEP);
}
function extend(count) {
  const shown = body.rows.length;
  body.append(...hits.slice(shown, shown + count).map(row));
  more.hidden = body.rows.length === hits.length;
}
// A link to a fragment shows and opens it, whatever the filter says.
function reveal() {
  const number = Number(location.hash.match(/^#f(\d+)$/)?.[1] ?? NaN);
  for (const old of body.querySelectorAll(".target")) old.classList.remove("target");
  if (!known.some(item => item.number === number)) return;
  if (!hits.some(item => item.number === number)) { box.value = ""; filter(); }
  const place = hits.findIndex(item => item.number === number);
  if (place >= body.rows.length) extend(place + 1 - body.rows.length);
  const line = body.rows[place];
  line.querySelector("details").open = true;
  line.classList.add("target");
  line.scrollIntoView({ block: "center" });
  line.querySelector("summary").focus({ preventScroll: true });
}

read().then(read => {
  [symbols, known] = read;
  filter();
  reveal();
  addEventListener("hashchange", reveal);
  box.addEventListener("input", filter);
  more.addEventListener("click", () => extend(STEP));
  new IntersectionObserver(seen => { if (seen.some(each => each.isIntersecting)) extend(STEP); }, { rootMargin: "500px" }).observe(more);
});

// A click on a column's head sorts by it, another one the other way round.
for (const button of document.querySelectorAll("th button")) button.addEventListener("click", () => {
  const head = button.parentElement, by = button.dataset.by;
  const now = head.getAttribute("aria-sort"), down = now ? now === "ascending" : by !== "number";
  for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  known.sort((a, b) => down ? b[by] - a[by] : a[by] - b[by]);
  filter();
});
