// Every figure can be saved as SVG and enlarged, says what one points at, and opens the playground
// where a bar, a cell or a panel is of a run that this has. book/_ext/inline_svg.py writes the names and values;
// book/_ext/data_links.py writes the line below each figure.
"use strict";

(() => {
  const PICTURES = ".figure-svg, article figure img, article .cell_output img";

  // ---- what one points at

  const hint = document.createElement("div");
  hint.className = "figure-hint";
  hint.setAttribute("aria-hidden", "true"); // the figure's text and its data are for screen readers

  /** @type {(value: number, size: number) => number} */
  const within = (value, size) => Math.max(0, Math.min(size - 1, Math.floor(value)));

  /** @type {(map: SVGElement, event: PointerEvent) => number} the number of a heat map's cell; -1 if there is none */
  function cellAt(map, event) {
    const width = Number(map.dataset.columns);
    const height = map.dataset.values.split(" ").length / width;
    if (map.tagName !== "image") return [...map.children].indexOf(event.target.closest("path"));
    const box = map.getBoundingClientRect();
    const row = within(((event.clientY - box.top) / box.height) * height, height);
    const column = within(((event.clientX - box.left) / box.width) * width, width);
    return row * width + column;
  }

  /** @type {(map: SVGElement, cell: number) => string} */
  function nameOf(map, cell) {
    const { columns, rows, names, values } = map.dataset;
    const value = values.split(" ")[cell];
    if (!value || value === "nan") return "";
    const place = [Math.floor(cell / columns), cell % columns];
    const words = [rows, names].map((list, i) => (list ? list.split("|")[place[i]] : ""));
    const between = map.classList.contains("attention") ? " to " : ", ";
    const name = words.filter(Boolean).join(between);
    return name ? `${name}: ${value}` : value;
  }

  /** @type {(event: PointerEvent) => string | undefined} the playground's address with what is pointed at */
  function linkAt(event) {
    const map = event.target.closest("[data-links]");
    if (map) return map.dataset.links.split("|")[cellAt(map, event)];
    return event.target.closest("[data-try]")?.dataset.try;
  }

  /** @type {(event: PointerEvent) => string} */
  function nameAt(event) {
    const target = event.target;
    const map = target.closest("[data-values]");
    const own = map ? nameOf(map, cellAt(map, event)) : target.closest("[data-value]")?.dataset.value;
    const link = linkAt(event);
    if (!own && !link) return "";
    const panel = target.closest("[data-panel]")?.dataset.panel;
    return [panel, own].filter(Boolean).join(", ") + (link ? " (click: try it)" : "");
  }

  function showHint(event) {
    const name = event.target.closest?.(".figure-svg") ? nameAt(event) : "";
    hint.hidden = !name;
    if (!name) return;
    hint.textContent = name;
    (event.target.closest("dialog") ?? document.body).append(hint);
    const { offsetWidth: width, offsetHeight: height } = hint;
    const left = Math.min(event.clientX + 12, document.documentElement.clientWidth - width - 4);
    const above = event.clientY - height - 10;
    hint.style.left = `${Math.max(4, left)}px`;
    hint.style.top = `${above > 4 ? above : event.clientY + 16}px`;
  }

  // ---- the run that one points at is lit wherever the page has it

  const RUNS = ".figure-svg [data-value], .strip path:has(title)";
  let lit = "";

  /** @type {(element: Element) => string} the name of an element's run, such as "our run 2"; "" if it is of none */
  function runOf(element) {
    const [, before, number] = /^(.*?)run (\d+)/.exec(element.dataset.value ?? element.textContent) ?? [];
    if (!number) return "";
    const lane = element.closest(".author, .ours")?.classList;
    const panel = element.closest("[data-panel]")?.dataset.panel ?? "";
    const isAuthors = lane?.contains("author") || /author/.test(before + panel);
    return `${before.replace(/(author’s|our) $/, "")}${isAuthors ? "author’s" : "our"} run ${number}`;
  }

  function light(event) {
    const pointed = event.target.closest?.(RUNS);
    const run = pointed ? runOf(pointed) : "";
    if (run === lit) return;
    lit = run;
    for (const element of document.querySelectorAll(RUNS)) {
      element.classList.toggle("lit", run !== "" && runOf(element) === run);
    }
  }

  // ---- enlarging

  const dialog = document.createElement("dialog");
  dialog.className = "figure-dialog";
  dialog.setAttribute("aria-label", "The figure, enlarged");
  dialog.innerHTML = '<button type="button" class="figure-close">Close</button><div class="figure-stage"></div>';
  const close = dialog.firstElementChild;
  const stage = dialog.lastElementChild;
  const home = document.createElement("div"); // keeps the figure's place on the page
  let opener = null;

  function enlarge(picture) {
    opener = document.activeElement;
    home.style.height = `${picture.getBoundingClientRect().height}px`;
    picture.replaceWith(home);
    stage.append(picture);
    dialog.showModal(); // Escape closes it
  }

  function putBack() {
    if (!stage.firstElementChild) return;
    home.replaceWith(stage.firstElementChild);
    document.body.append(hint);
    hint.hidden = true;
    opener?.focus();
  }

  close.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", putBack);
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());

  function clicked(event) {
    const picture = event.target.closest?.(`${PICTURES}, .strip [data-try]`);
    if (!picture || event.target.closest("a") || getSelection().toString()) return;
    const link = linkAt(event);
    if (link) location.href = link;
    else if (!dialog.open) enlarge(picture);
  }

  // ---- the line below a figure

  /** @type {(picture: Element) => SVGSVGElement} a figure whose sides are SVGs of their own, as one */
  function whole(picture) {
    const [first, ...others] = picture.querySelectorAll(":scope > svg");
    if (!others.length) return first;
    const svg = first.cloneNode(true);
    for (const other of others) svg.append(...other.cloneNode(true).childNodes);
    const { width, height } = first.viewBox.baseVal;
    const all = width * (1 + others.length);
    svg.setAttribute("viewBox", `0 0 ${all} ${height}`);
    svg.setAttribute("width", `${all}pt`);
    return svg;
  }

  /** @type {(picture: Element, name: string) => HTMLAnchorElement} */
  function download(picture, name) {
    const isFile = picture.tagName === "IMG";
    const link = document.createElement("a");
    link.href = isFile ? picture.src : "#";
    link.download = name + ".svg";
    link.textContent = "↓ SVG";
    link.title = "Download this figure as SVG";
    link.addEventListener("click", () => {
      if (isFile || link.href.startsWith("blob:")) return;
      const text = new XMLSerializer().serializeToString(whole(picture)).replace(/var\(--[\w-]+, ([^)]*)\)/g, "$1");
      link.href = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
    });
    return link;
  }

  /** @type {(picture: Element) => HTMLButtonElement} */
  function enlarger(picture) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "figure-enlarge";
    button.textContent = "⤢ Enlarge";
    button.addEventListener("click", () => enlarge(picture));
    return button;
  }

  /** @type {(picture: Element) => HTMLElement} the line below a picture; a new one where it has no data */
  function lineOf(picture) {
    const figure = picture.closest("figure");
    const next = (figure ?? picture).nextElementSibling;
    const line = figure?.querySelector(".data-links.of-figure") ?? (next?.matches(".data-links.of-figure") && next);
    if (line) return line;
    const own = document.createElement("p");
    own.className = "data-links";
    (figure ?? picture).after(own);
    return own;
  }

  document.addEventListener("DOMContentLoaded", () => {
    document.body.append(dialog, hint);
    hint.hidden = true;
    for (const picture of document.querySelectorAll(PICTURES)) {
      if (picture.closest("a, table")) continue;
      const line = lineOf(picture);
      const added = [enlarger(picture)];
      const isVector = picture.tagName !== "IMG" || picture.src.endsWith(".svg");
      if (isVector && line.dataset.name) added.push(download(picture, line.dataset.name));
      for (const item of added.reverse()) line.prepend(item, line.childElementCount ? " · " : "");
      picture.classList.add("can-be-enlarged");
      const scroller = picture.tagName === "IMG" && picture.closest("figure, .cell_output");
      if (scroller) scroller.tabIndex = 0; // on a phone, where an SVG scrolls by itself
    }
    document.addEventListener("pointermove", showHint);
    document.addEventListener("pointermove", light);
    document.addEventListener("pointerdown", showHint);
    document.addEventListener("click", clicked);
  });
})();
