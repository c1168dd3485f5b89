// Every figure can be saved as SVG and enlarged, says what one points at, and opens the playground
// where a bar has an intervention that this can show. book/_ext/inline_svg.py writes the names and values;
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

  /** @type {(map: SVGElement, event: PointerEvent) => string} the cell of a heat map */
  function cellAt(map, event) {
    const { columns, rows, names, values } = map.dataset;
    if (!values) return "";
    const all = values.split(" ");
    const width = Number(columns);
    let row;
    let column;
    if (map.tagName === "image") {
      const box = map.getBoundingClientRect();
      row = within(((event.clientY - box.top) / box.height) * (all.length / width), all.length / width);
      column = within(((event.clientX - box.left) / box.width) * width, width);
    } else {
      const place = [...map.children].indexOf(event.target.closest("path"));
      if (place < 0) return "";
      row = Math.floor(place / width);
      column = place % width;
    }
    const words = [rows, names].map((list, i) => (list ? list.split("|")[[row, column][i]] : ""));
    const isAttention = map.classList.contains("attention");
    const cell = words.filter(Boolean).join(isAttention ? " to " : ", ");
    const value = all[row * width + column];
    return value === "nan" ? "" : `${cell ? `${cell}: ` : ""}${value}`;
  }

  /** @type {(event: PointerEvent) => string} */
  function nameAt(event) {
    const target = event.target;
    const map = target.closest("[data-values]");
    const own = map ? cellAt(map, event) : target.closest("[data-value]")?.dataset.value;
    if (!own) return "";
    const panel = target.closest("[data-panel]")?.dataset.panel;
    const link = target.closest("[data-try]") ? " (click: try it)" : "";
    return (panel ? `${panel}, ${own}` : own) + link;
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
    const picture = event.target.closest?.(PICTURES);
    if (!picture || event.target.closest("a") || getSelection().toString()) return;
    const link = event.target.closest("[data-try]");
    if (link) location.href = link.dataset.try;
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
    }
    document.addEventListener("pointermove", showHint);
    document.addEventListener("pointerdown", showHint);
    document.addEventListener("click", clicked);
  });
})();
