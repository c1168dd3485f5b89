// Views of one pass: each draws into an element of its own and can be asked to draw again.
"use strict";

/** @typedef {{ run: Run, sum: [number, number], tokens: number[], intact: Activations, cache: Activations, part: Intervention | null }} Pass */

const CarryViews = (() => {
  const { digits, answer, readProbe } = CarryModel;
  const SYMBOLS = "0123456789+=";
  const PLACES = ["hundreds", "tens", "units"];

  /** An element of HTML or SVG.
   * @param {string} name @param {Record<string, any>} [attributes] @param {...(string | Node)} children @returns {any} */
  function make(name, attributes = {}, ...children) {
    const drawn = ["svg", "g", "rect", "circle", "line", "path", "text"].includes(name);
    const element = drawn ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
      else if (value !== false && value !== null) element.setAttribute(key, value === true ? "" : String(value));
    }
    element.append(...children);
    return element;
  }

  /** @param {number} x */
  const percent = (x) => `${(100 * x).toFixed(x > 0.995 || x < 0.005 ? 0 : 1)} %`;

  /** How a digit misses the right one, modulo ten.
   * @param {number} found @param {number} right */
  function miss(found, right) {
    const apart = (found - right + 10) % 10;
    return { 0: "right", 1: "one too large", 9: "one too small" }[apart] || "wrong";
  }

  /** The wires of a full adder at each column (App. I).
   * @param {[number, number]} sum @param {number} width */
  function schoolbook([a, b], width) {
    const [left, right] = [digits(a, width), digits(b, width)];
    const total = left.map((x, i) => x + right[i]);
    const carry_in = Array(width).fill(0);
    for (let i = width - 1; i > 0; i--) carry_in[i - 1] = Number(total[i] + carry_in[i] > 9);
    return { total, ones: total.map((x) => x % 10), tens: total.map((x) => Number(x > 9)), carry_in, digit: digits(a + b, width) };
  }

  /** The answer in words, for the page's live region.
   * @param {Pass} pass */
  function spoken({ run, sum: [a, b], cache }) {
    const [found, right] = [answer(run, cache.logits).digits, digits(a + b, run.config.width)];
    const misses = right
      .map((digit, i) => [PLACES[i], miss(found[i], digit)])
      .filter(([, how]) => how !== "right");
    const text = `${a} + ${b} = ${found.map((digit) => SYMBOLS[digit]).join("")}`;
    if (!misses.length) return `${text}, right.`;
    return `${text}. It should be ${right.join("")}: ${misses.map(([place, how]) => `${place} ${how}`).join(", ")}.`;
  }

  /** The digits with the probabilities of each.
   * @param {HTMLElement} root @param {Pass} pass */
  function showAnswer(root, pass) {
    const { run, sum: [a, b], cache } = pass; // prettier-ignore
    const [found, right] = [answer(run, cache.logits), digits(a + b, run.config.width)];
    const columns = found.digits.map((digit, i) => {
      const how = miss(digit, right[i]);
      const bars = found.probabilities[i].slice(0, 10).map((p, value) =>
        make("li", { class: value === right[i] ? "is-right" : "", title: `${value}: ${percent(p)}`, style: `--p: ${p}` }, make("span", {}, String(value)), make("i"), make("b", {}, p < 0.0005 ? "" : percent(p))),
      );
      const digitShown = make("strong", { class: how === "right" ? "pg-digit" : "pg-digit pg-wrong" }, SYMBOLS[digit]);
      const note = make("small", {}, how === "right" ? PLACES[i] : `${how}, not ${right[i]}`);
      return make("div", { class: "pg-column" }, digitShown, note, make("ol", { "aria-label": `Probabilities of the ${PLACES[i]}` }, ...bars));
    });
    root.replaceChildren(make("div", { class: "pg-sum", "aria-hidden": "true" }, `${a} + ${b} =`), ...columns);
  }

  /** A map of a head's attention; `draw` fills it.
   * @param {string} title */
  function attentionMap(title) {
    const svg = make("svg", { viewBox: "0 0 110 110", "aria-hidden": "true" });
    const state = make("span", { class: "pg-map-state" });
    const button = make("button", { type: "button", class: "pg-map", "aria-pressed": "false" }, make("span", { class: "pg-map-title" }, title, state), svg);
    /** @type {any[]} */
    let cells = [];
    /** @type {any[]} */
    let labels = [];
    /** @param {ArrayLike<number>} pattern @param {number[]} tokens @param {boolean} off */
    function draw(pattern, tokens, off) {
      const n = tokens.length;
      if (!cells.length) {
        const at = (/** @type {number} */ i) => 10 + i * 10;
        labels = [0, 1].flatMap((side) => tokens.map((_, i) => make("text", side ? { x: at(i) + 5, y: 8 } : { x: 5, y: at(i) + 8 })));
        cells = Array.from(pattern, (_, i) => make("rect", { x: at(i % n), y: at(Math.floor(i / n)), width: 9.4, height: 9.4 }));
        svg.append(make("rect", { class: "pg-map-ground", x: 10, y: 10, width: 100, height: 100 }), ...labels, ...cells);
      }
      labels.forEach((label, i) => (label.textContent = SYMBOLS[tokens[i % n]]));
      cells.forEach((cell, i) => cell.setAttribute("fill-opacity", pattern[i].toFixed(3)));
      button.setAttribute("aria-pressed", String(off));
      state.textContent = off ? " off" : "";
    }
    return { button, svg, draw };
  }

  /** Where a pointer is on a map: query and key, or nothing.
   * @param {SVGElement} svg @param {MouseEvent} event */
  function cellAt(svg, event) {
    const box = svg.getBoundingClientRect();
    const [key, query] = [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height].map((x) => Math.floor(x * 11) - 1);
    return key >= 0 && query >= 0 && key < 10 && query < 10 ? [query, key] : null;
  }

  /** What the probes read, beside what is so.
   * @param {HTMLElement} root @param {Pass} pass */
  function showProbes(root, { run, sum, cache, intact }) {
    const right = schoolbook(sum, run.config.width);
    const asked = { ones: "Column sum, last digit", tens: "Column sum ten or more", carry_in: "Carry-in", digit: "Answer digit" };
    const rows = Object.entries(asked).map(([label, title]) => {
      const probes = run.probes.map((probe, i) => ({ ...probe, i })).filter((probe) => probe.label === label);
      const cells = PLACES.map((_, column) => {
        const probe = probes.find((each) => each.column === column);
        if (!probe) return make("td", {}, "–");
        const truth = Number(right[/** @type {"ones"} */ (label)][column]);
        const [before, now] = [intact, cache].map((x) => readProbe(run, probe.i, x));
        /** @type {(x: number) => string} */
        const word = (x) => (["tens", "carry_in"].includes(label) ? (x ? "yes" : "no") : String(x));
        const why = `at token ${probe.position}; right on ${percent(probe.accuracy)} of new sums`;
        const moved = before === now ? "" : make("small", {}, ` was ${word(before)}`);
        return make("td", { title: why }, make("span", { class: now === truth ? "pg-ok" : "pg-wrong" }, word(now)), now === truth ? "" : make("small", {}, ` is ${word(truth)}`), moved);
      });
      return make("tr", {}, make("th", { scope: "row" }, title, make("small", {}, where(probes[0].name))), ...cells);
    });
    const head = make("tr", {}, make("th", { scope: "col" }, "Read from the stream"), ...PLACES.map((place) => make("th", { scope: "col" }, place)));
    root.replaceChildren(make("table", { class: "pg-table" }, make("caption", {}, "Linear probes"), make("thead", {}, head), make("tbody", {}, ...rows)));
  }

  /** A point of the stream in words.
   * @param {string} name */
  function where(name) {
    const [, layer, point] = name.split(".");
    return `after layer ${layer}’s ${point === "resid_mid" ? "attention" : "MLP"}`;
  }

  /** The planes of Fig. 4 with the current sum on them: a ring where it is intact, a dot where it is now.
   * @param {HTMLElement} root @param {Pass} pass */
  function showPlanes(root, { run, sum, cache, intact }) {
    const known = /** @type {[number, number][]} */ (run.planes[0].sums);
    const panels = run.planes.map((plane, i) => {
      const [axes, points] = [run.weights[`plane.${i}.axes`], run.weights[`plane.${i}.points`].data];
      const [before, now] = [intact, cache].map((x) => [0, 1].map((axis) => CarryMaths.dot(CarryMaths.row(axes, axis), CarryMaths.row(x[plane.name], plane.position)) - plane.centre[axis]));
      const reach = [0, 1].map((axis) => 1.08 * Math.max(...known.map((_, j) => Math.abs(points[2 * j + axis])), Math.abs(before[axis]), Math.abs(now[axis])));
      /** @type {(xy: ArrayLike<number>) => number[]} */
      const place = (xy) => [50 + (48 * xy[0]) / reach[0], 50 - (48 * xy[1]) / reach[1]];
      const dots = known.map((other, j) => {
        const [x, y] = place([points[2 * j], points[2 * j + 1]]);
        const yes = schoolbook(other, run.config.width)[plane.label][plane.column];
        return yes ? make("path", { class: "pg-yes", d: `M${x - 1.6} ${y + 1.4}h3.2l-1.6 -3z` }) : make("circle", { class: "pg-no", cx: x, cy: y, r: 1.3 });
      });
      const [[x0, y0], [x1, y1]] = [place(before), place(now)];
      const svg = make("svg", { viewBox: "0 0 100 100", role: "img", "aria-label": `This sum at ${now.map((x) => x.toFixed(1)).join(", ")} on the two leading axes` });
      svg.append(...dots, make("line", { class: "pg-moved", x1: x0, y1: y0, x2: x1, y2: y1 }), make("circle", { class: "pg-before", cx: x0, cy: y0, r: 3 }), make("circle", { class: "pg-now", cx: x1, cy: y1, r: 3 }));
      const yes = schoolbook(sum, run.config.width)[plane.label][plane.column];
      const title = `${PLACES[plane.column]}, ${where(plane.name)}`;
      const label = `${plane.label === "tens" ? "ten or more" : "carry-in"}: ${yes ? "yes" : "no"}`;
      return make("figure", { class: "pg-plane" }, make("figcaption", {}, title, make("small", {}, label)), svg);
    });
    root.replaceChildren(...panels);
  }

  return { make, percent, miss, schoolbook, spoken, showAnswer, attentionMap, cellAt, showProbes, showPlanes, where, SYMBOLS, PLACES };
})();
