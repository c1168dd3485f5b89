// On a phone the sections of a very long page are folded: their headings then make a list, in which one is opened.
// A link to something inside a section opens it.
"use strict";

const phone = window.matchMedia("(max-width: 640px)");
const LONG = 30_000; // px

/** Put all of a section but its heading behind the heading. */
function fold(section) {
  const heading = section.querySelector(":scope > h2");
  if (!heading) return;
  const details = document.createElement("details");
  details.className = "folded";
  const summary = document.createElement("summary");
  summary.append(heading);
  details.append(summary, ...section.childNodes);
  section.append(details);
}

/** Open the section that the address names, or that has what it names. */
function open() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const details = target?.closest("details.folded") ?? target?.querySelector(":scope > details.folded");
  if (!details || details.open) return;
  details.open = true;
  target.scrollIntoView();
}

/** Fold the sections on a phone, if the page is long; on a wide screen all of them are open. */
function apply() {
  const isFolded = document.querySelector("details.folded");
  if (phone.matches && !isFolded && document.documentElement.scrollHeight > LONG) {
    document.querySelectorAll("article section > section:has(> h2)").forEach(fold);
    open();
  } else if (!phone.matches) {
    for (const details of document.querySelectorAll("details.folded")) details.open = true;
  }
}

document.addEventListener("DOMContentLoaded", () => {
  apply();
  phone.addEventListener("change", apply);
  window.addEventListener("hashchange", open);
});
