// Filters and sorts the table of the claims page. The address says how (#verdict=differs&section=tab1), so that it can be
// linked; #tab1/final_mlp/NC/accuracy/pos7 is a row. Without this script the page shows every row in the ledger's order.
"use strict";

const FILTERS = ["verdict", "source", "section", "page", "q"];
const KEYS = [...FILTERS, "sort", "order"];
const ORDERS = ["ascending", "descending"];
const MANY = 60; // rows that a phone shows at once

/** Text from the address between quotation marks, cut short. */
const quote = (text) => `“${text.length > 60 ? `${text.slice(0, 60)}…` : text}”`;

/**
 * What an address asks for, nothing if it names a row or a heading; and a line for each thing in it that is ignored.
 * The `choices` are the values that each key can have; any other key takes any text.
 */
function parse(fragment, choices = {}) {
  const text = fragment.replace(/^#/, "");
  const [state, ignored] = [{}, []];
  if (!text.includes("=")) return { state, ignored };
  for (const [key, value] of new URLSearchParams(text)) {
    const what = key ? quote(key) : "a value without a name";
    const possible = choices[key]; // of a known key
    if (!KEYS.includes(key)) {
      ignored.push(`The address has ${what}: expected ${KEYS.join(", ")}.`);
    } else if (value && possible && !possible.includes(value)) {
      ignored.push(`The address has ${key} ${quote(value)}: expected ${possible.join(", ")}.`);
    } else if (value) {
      state[key] = value;
    }
  }
  return { state, ignored };
}

/** The address of a state, without the #; what is left at its default is left out. */
function format(state) {
  return new URLSearchParams(KEYS.filter((key) => state[key]).map((key) => [key, state[key]])).toString();
}

/** A text with straight apostrophes, as a keyboard has them. */
function straight(text) {
  return text.replaceAll("’", "'");
}

/** Whether a row { section, page, verdicts: { source: verdict }, text } is asked for. */
function matches(row, state) {
  if (state.section && row.section !== state.section) return false;
  if (state.page && row.page !== state.page) return false;
  if (state.verdict) {
    const verdicts = state.source ? [row.verdicts[state.source]] : Object.values(row.verdicts);
    if (!verdicts.includes(state.verdict)) return false;
  }
  const words = straight(state.q || "").toLowerCase().split(/\s+/);
  return words.every((word) => straight(row.text).toLowerCase().includes(word));
}

/** Compare two rows { keys: { column: number or null } } by a column; what has no number there comes last. */
function compare(a, b, column, descending) {
  const [x, y] = [a.keys[column] ?? null, b.keys[column] ?? null];
  if (x === null || y === null) return (x === null) - (y === null) || a.keys.order - b.keys.order;
  return (descending ? y - x : x - y) || a.keys.order - b.keys.order;
}

/** How many rows are found; on a phone also how many of them are shown, and where the others are. */
function counted(shown, found, all, folds) {
  const count = `${found} of ${all} rows`;
  if (shown === found) return count;
  return folds ? `${count}, folded by part: open a part below` : `${count}; the first ${shown} are shown`;
}

/** What the script has to know of a row of the table. */
function read(element, order) {
  const data = element.dataset;
  const verdicts = {};
  const keys = { order, paper: data.paper === undefined ? null : Number(data.paper) };
  for (const source of ["author", "ours"]) {
    if (data[source] === undefined) continue;
    verdicts[source] = data[source];
    keys[source] = Number(data[`rank${source[0].toUpperCase()}${source.slice(1)}`]);
  }
  const page = element.querySelector('[data-label="Page"] a').getAttribute("href").replace(".html", "");
  return { element, home: element.parentNode, section: data.section, page, verdicts, keys, text: element.textContent };
}

/** The values of a field that one chooses from. */
const valuesOf = (field) => [...field.options].map((option) => option.value).filter(Boolean);

function start(root) {
  const [form, table] = [root.querySelector("form"), root.querySelector("table")];
  const rows = [...table.querySelectorAll("tr[id]")].map(read);
  const groups = [...table.querySelectorAll(".claims-group")];
  const heads = [...table.querySelectorAll("th[data-sort]")];
  const sorted = table.createTBody();
  sorted.setAttribute("role", "rowgroup");
  const choices = {
    verdict: valuesOf(form.elements.verdict),
    section: valuesOf(form.elements.section),
    page: valuesOf(form.elements.page),
    source: Object.keys(rows[0].verdicts),
    sort: heads.map((head) => head.dataset.sort),
    order: ORDERS,
  };
  const phone = window.matchMedia("(max-width: 900px)");
  const unfolded = new Set(); // groups that are open on a phone
  const more = document.createElement("button"); // for the rest of a long list in another order than the ledger's
  let whole = false; // whether a phone shows such a list to its end
  let state = {};
  let ignored = []; // lines about the address

  function show() {
    const { sort = "order", order } = state;
    const natural = sort === "order" && order !== "descending";
    const found = rows.filter((row) => matches(row, state));
    const long = phone.matches && found.length > MANY;
    const folds = long && natural;
    found.sort((a, b) => compare(a, b, sort, order === "descending"));
    const shown = folds ? found.filter((row) => unfolded.has(row.home)) : found;
    const first = new Set(long && !natural && !whole ? shown.slice(0, MANY) : shown);
    for (const row of rows) row.element.hidden = !first.has(row);
    for (const row of natural ? rows : found) (natural ? row.home : sorted).append(row.element);
    more.hidden = first.size === shown.length;
    more.textContent = `Show all ${found.length} rows`;
    for (const group of groups) {
      const home = group.parentNode;
      const n = found.filter((row) => row.home === home).length;
      group.hidden = !natural || !n;
      const fold = group.querySelector("button");
      const open = unfolded.has(home);
      fold.textContent = `${open ? "▾ Hide" : "▸ Show"} ${n === 1 ? "1 row" : `${n} rows`}`;
      fold.hidden = !folds;
      fold.setAttribute("aria-expanded", open);
    }
    for (const head of heads) {
      if (head.dataset.sort === sort) head.setAttribute("aria-sort", order || "ascending");
      else head.removeAttribute("aria-sort");
    }
    for (const key of FILTERS) {
      const field = form.elements[key];
      if (field && field.value !== (state[key] || "")) field.value = state[key] || "";
    }
    const count = counted(first.size, found.length, rows.length, folds);
    form.querySelector("output").textContent = [count, ...ignored].join(". ");
  }

  function change(next, lines = []) {
    state = next;
    ignored = lines;
    whole = false;
    show();
  }

  /** Write the state into the address, without a step in the browser's history. */
  function write() {
    const address = format(state);
    history.replaceState(history.state, "", address ? `#${address}` : location.pathname + location.search);
  }

  /** Do as the address says. A row that it names is shown whatever was filtered before. */
  function follow() {
    const row = rows.find(({ element }) => element.matches(":target"));
    const asked = parse(location.hash, choices);
    const named = location.hash.length > 1 && !location.hash.includes("=");
    if (named && !row) {
      if (document.querySelector(":target")) return; // a heading
      asked.ignored.push(`No row is called ${quote(location.hash.slice(1))}.`);
    }
    if (row) unfolded.add(row.home);
    if (!row || row.element.hidden) change(asked.state, asked.ignored);
    if (row) row.element.scrollIntoView({ block: "center" });
    else if (location.hash) root.scrollIntoView();
  }

  for (const group of groups) {
    const home = group.parentNode;
    const fold = document.createElement("button");
    fold.type = "button";
    fold.addEventListener("click", () => {
      if (!unfolded.delete(home)) unfolded.add(home);
      show();
    });
    group.firstElementChild.append(fold);
  }
  more.type = "button";
  more.addEventListener("click", () => {
    whole = true;
    show();
  });
  table.after(more);
  phone.addEventListener("change", show);
  for (const head of heads) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    button.addEventListener("click", () => {
      const again = (state.sort || "order") === head.dataset.sort && state.order !== "descending";
      change({ ...state, sort: head.dataset.sort, order: again ? "descending" : "" });
      write();
    });
    head.append(button);
  }
  form.addEventListener("input", () => {
    const filters = Object.fromEntries(new FormData(form));
    change({ ...filters, sort: state.sort, order: state.order });
  });
  form.addEventListener("change", write); // not at each key: browsers limit how often
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", (event) => {
    event.preventDefault();
    change({});
    write();
  });
  for (const link of document.querySelectorAll("a[data-filter]")) link.href = `#${link.dataset.filter}`;
  window.addEventListener("hashchange", follow);
  form.hidden = false;
  show();
  follow();
}

if (typeof document !== "undefined") {
  document.addEventListener("DOMContentLoaded", () => document.querySelectorAll("div.claims").forEach(start));
} else {
  module.exports = { parse, format, matches, compare, counted }; // for its tests, in Node
}
