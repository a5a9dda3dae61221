"use strict";
const byId = id => document.getElementById(id), body = byId("rows"), box = byId("filter"), more = byId("more");
// Rows that are made at once.
const STEP = 200;
const known = JSON.parse(byId("data").textContent);
let hits = known;

// All that a database says becomes text, never markup.
function make(tag, ...content) {
  const made = document.createElement(tag);
  made.append(...content);
  return made;
}
function row(item) {
  const told = make("dl");
  for (const [what, lines] of Object.entries(item.about))
    if (lines.length) told.append(make("dt", what), ...lines.map(line => make("dd", make("code", line))));
  const head = make("th", make("details", make("summary", [item.name, ...item.parameters].join(" ")), told));
  const size = make("td", item.size), line = make("tr", head, size);
  head.scope = "row";
  size.className = "number";
  line.id = item.key;
  return line;
}
function extend() {
  const shown = body.rows.length;
  body.append(...hits.slice(shown, shown + STEP).map(row));
  more.hidden = body.rows.length === hits.length;
}
// Every term must stand in the fragment's key; NAME=VALUE must be one of its parameters, whole.
function filter() {
  const terms = box.value.toLowerCase().split(/\s+/).filter(Boolean);
  const holds = (text, term) => text === term || (!term.includes("=") && text.includes(term));
  const texts = item => [item.name, ...item.parameters].map(text => text.toLowerCase());
  hits = known.filter(item => { const own = texts(item); return terms.every(term => own.some(text => holds(text, term))); });
  byId("found").textContent = `${hits.length} of ${known.length}`;
  body.replaceChildren();
  extend();
}
// A link to a fragment shows and opens it, whatever the filter says.
function reveal() {
  const item = known.find(item => item.key === decodeURIComponent(location.hash.slice(1)));
  body.querySelector(".target")?.classList.remove("target");
  if (!item) return;
  if (!hits.includes(item)) { box.value = ""; filter(); }
  while (!byId(item.key)) extend();
  byId(item.key).querySelector("details").open = true;
  byId(item.key).classList.add("target");
  byId(item.key).scrollIntoView({ block: "center" });
}

filter();
reveal();
addEventListener("hashchange", reveal);
box.addEventListener("input", filter);
more.addEventListener("click", extend);
