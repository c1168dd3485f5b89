// Views of one pass: each draws into an element of its own and can be asked to draw again.
"use strict";

const CarryViews = (() => {
  const { dot, row } = CarryMaths;
  const { digits, answer, readProbe } = CarryModel;
  const SYMBOLS = "0123456789+=";
  const PLACES = ["hundreds", "tens", "units"];
  const CLASSES = ["NC", "C@1", "C@2", "C all", "C all con."]; // carry classes (Sec. 2)

  /** An element of HTML or SVG.
   * @param {string} name @param {any} [attributes] @param {...(string | Node)} children @returns {any} */
  function make(name, attributes = {}, ...children) {
    const drawn = ["svg", "g", "rect", "circle", "line", "path", "text"].includes(name);
    const element = drawn ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    for (const [key, value] of Object.entries(/** @type {Record<string, any>} */ (attributes))) {
      if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
      else if (value !== false && value !== null) element.setAttribute(key, value === true ? "" : String(value));
    }
    element.append(...children);
    return element;
  }

  /** @param {number} x */
  const percent = (x) => `${(100 * x).toFixed(x > 0.9995 || x < 0.0005 ? 0 : 1)} %`;

  /** How a digit misses the right one, modulo ten; “+” and “=” are wrong.
   * @param {number} found @param {number} right @returns {keyof Outcome} */
  function miss(found, right) {
    if (found > 9) return "wrong";
    const apart = (found - right + 10) % 10;
    return apart === 0 ? "right" : apart === 1 ? "one too large" : apart === 9 ? "one too small" : "wrong";
  }

  /** The wires of a full adder at each column (App. I).
   * @param {Sum} sum @param {number} width */
  function schoolbook([a, b], width) {
    const [left, right] = [digits(a, width), digits(b, width)];
    const total = left.map((x, i) => x + right[i]);
    const carry_in = Array(width).fill(0);
    for (let i = width - 1; i > 0; i--) carry_in[i - 1] = Number(total[i] + carry_in[i] > 9);
    const [ones, tens] = [total.map((x) => x % 10), total.map((x) => Number(x > 9))];
    return { total, ones, tens, carry_in, digit: digits(a + b, width) };
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

  /** A table with a caption; each row's first cell names it.
   * @param {string} caption @param {string[]} head @param {(string | Node)[][]} rows */
  function table(caption, head, rows) {
    const top = make("tr", {}, ...head.map((text) => make("th", { scope: "col" }, text)));
    const body = rows.map(([name, ...cells]) =>
      make("tr", {}, make("th", { scope: "row" }, name), ...cells.map((cell) => make("td", {}, cell))),
    );
    const parts = [make("caption", {}, caption), make("thead", {}, top), make("tbody", {}, ...body)];
    return make("table", { class: "pg-table" }, ...parts);
  }

  /** The digits with the probabilities of each.
   * @param {HTMLElement} root @param {Pass} pass */
  function showAnswer(root, { run, sum: [a, b], cache }) {
    const [found, right] = [answer(run, cache.logits), digits(a + b, run.config.width)];
    const columns = found.digits.map((digit, i) => {
      const how = miss(digit, right[i]);
      const bars = [...found.probabilities[i].slice(0, 10)].map((p, value) => {
        const bar = [make("span", {}, String(value)), make("i"), make("b", {}, p < 0.0005 ? "" : percent(p))];
        return make("li", { class: value === right[i] ? "is-right" : "", style: `--p: ${p}` }, ...bar);
      });
      return make(
        "div",
        { class: "pg-column" },
        make("strong", { class: how === "right" ? "pg-digit" : "pg-digit pg-wrong" }, SYMBOLS[digit]),
        make("small", {}, how === "right" ? PLACES[i] : `${how}, not ${right[i]}`),
        make("ol", { "aria-label": `Probabilities of the ${PLACES[i]}` }, ...bars),
      );
    });
    root.replaceChildren(...columns);
  }

  /** A map of a head's attention; `draw` fills it.
   * @param {string} title @param {"button" | "figure"} [kind] */
  function attentionMap(title, kind = "button") {
    const svg = make("svg", { viewBox: "0 0 110 110", "aria-hidden": "true" });
    const off = make("span", { class: "pg-map-state" });
    const element = make(kind, { type: "button", class: "pg-map" }, make("span", {}, title, off), svg);
    const at = (/** @type {number} */ i) => 10 + i * 10;
    const ten = Array.from({ length: 10 }, (_, i) => i);
    const labels = [...ten.map((i) => ({ x: 5, y: at(i) + 8 })), ...ten.map((i) => ({ x: at(i) + 5, y: 8 }))];
    const texts = labels.map((where) => make("text", where));
    const square = { width: 9.4, height: 9.4 };
    const squares = ten.flatMap((j) => ten.map((i) => make("rect", { ...square, x: at(i), y: at(j) })));
    svg.append(make("rect", { class: "pg-map-ground", x: 10, y: 10, width: 100, height: 100 }), ...texts, ...squares);
    /** @param {ArrayLike<number>} pattern @param {string[]} tokens @param {boolean} [isOff] */
    function draw(pattern, tokens, isOff) {
      texts.forEach((text, i) => (text.textContent = tokens[i % 10]));
      squares.forEach((square, i) => square.setAttribute("fill-opacity", pattern[i].toFixed(3)));
      if (kind === "button") element.setAttribute("aria-pressed", String(Boolean(isOff)));
      off.textContent = isOff ? " off" : "";
    }
    return { element, svg, draw };
  }

  /** Where a pointer is on a map: query and key, or nothing.
   * @param {SVGElement} svg @param {MouseEvent} event */
  function cellAt(svg, event) {
    const box = svg.getBoundingClientRect();
    const [x, y] = [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
    const [key, query] = [x, y].map((part) => Math.floor(part * 11) - 1);
    return key >= 0 && query >= 0 && key < 10 && query < 10 ? [query, key] : null;
  }

  /** What a run's probes of a kind read, beside what is so.
   * @param {Pass} pass @param {string} label */
  function readings({ run, sum, cache, intact }, label) {
    const right = schoolbook(sum, run.config.width)[/** @type {"ones"} */ (label)];
    return run.probes.flatMap((probe, i) => {
      const [before, now] = [intact, cache].map((x) => readProbe(run, i, x));
      return probe.label === label ? [{ ...probe, before, now, truth: Number(right[probe.column]) }] : [];
    });
  }

  /** What the probes read, beside what is so.
   * @param {HTMLElement} root @param {Pass} pass */
  function showProbes(root, pass) {
    const titles = {
      ones: "Column sum, last digit",
      tens: "Column sum ten or more",
      carry_in: "Carry-in",
      digit: "Answer digit",
    };
    const rows = Object.entries(titles).map(([label, title]) => {
      const found = readings(pass, label);
      const word = (/** @type {number} */ x) => (/tens|carry_in/.test(label) ? (x ? "yes" : "no") : String(x));
      const cells = PLACES.map((_, column) => {
        const probe = found.find((each) => each.column === column);
        if (!probe) return "–";
        const { truth, before, now, position, accuracy } = probe;
        const why = `at token ${position}; right on ${percent(accuracy)} of new sums`;
        const notes = [truth === now ? "" : ` is ${word(truth)}`, before === now ? "" : ` was ${word(before)}`];
        const said = make("span", { class: truth === now ? "pg-ok" : "pg-wrong" }, word(now));
        return make("div", { title: why }, said, ...notes.map((note) => make("small", {}, note)));
      });
      return [make("span", {}, title, make("small", {}, where(found[0].name))), ...cells];
    });
    root.replaceChildren(table("Linear probes", ["Read from the stream", ...PLACES], rows));
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
    const known = run.planes[0].sums || [];
    const panels = run.planes.map(({ name, position, column, label, centre }, i) => {
      const [axes, points] = [run.weights[`plane.${i}.axes`], run.weights[`plane.${i}.points`].data];
      const isSo = (/** @type {Sum} */ other) => schoolbook(other, run.config.width)[label][column];
      const project = (/** @type {Activations} */ x) =>
        centre.map((mean, axis) => dot(row(axes, axis), row(x[name], position)) - mean);
      const [before, now] = [project(intact), project(cache)];
      const reach = [0, 1].map((axis) => {
        const others = known.map((_, j) => points[2 * j + axis]);
        return 1.08 * Math.max(...[...others, before[axis], now[axis]].map(Math.abs));
      });
      const place = (/** @type {number[]} */ [x, y]) => [50 + (48 * x) / reach[0], 50 - (48 * y) / reach[1]];
      const dots = known.map((other, j) => {
        const [x, y] = place([points[2 * j], points[2 * j + 1]]);
        const triangle = `M${x - 1.6} ${y + 1.4}h3.2l-1.6 -3z`;
        if (isSo(other)) return make("path", { class: "pg-yes", d: triangle });
        return make("circle", { class: "pg-no", cx: x, cy: y, r: 1.3 });
      });
      const [[x0, y0], [x1, y1]] = [place(before), place(now)];
      const described = `This sum at ${now.map((x) => x.toFixed(1)).join(", ")} on the two leading axes`;
      const svg = make("svg", { viewBox: "0 0 100 100", role: "img", "aria-label": described });
      svg.append(
        ...dots,
        make("line", { class: "pg-moved", x1: x0, y1: y0, x2: x1, y2: y1 }),
        make("circle", { class: "pg-before", cx: x0, cy: y0, r: 3 }),
        make("circle", { class: "pg-now", cx: x0, cy: y0, r: 3, "data-cx": x1, "data-cy": y1 }),
      );
      const truth = `${label === "tens" ? "ten or more" : "carry-in"}: ${isSo(sum) ? "yes" : "no"}`;
      const caption = make("figcaption", {}, `${PLACES[column]}, ${where(name)}`, make("small", {}, truth));
      return make("figure", { class: "pg-plane" }, caption, svg);
    });
    root.replaceChildren(...panels);
    for (const dot of /** @type {NodeListOf<SVGElement>} */ (root.querySelectorAll(".pg-now"))) {
      getComputedStyle(dot).getPropertyValue("cx"); // where it starts from, so that the style sheet moves it
      for (const axis of ["cx", "cy"]) dot.setAttribute(axis, String(dot.dataset[axis]));
    }
  }

  const shown = { showAnswer, attentionMap, cellAt, showProbes, showPlanes };
  return { make, table, percent, miss, schoolbook, spoken, readings, where, ...shown, SYMBOLS, PLACES, CLASSES };
})();
