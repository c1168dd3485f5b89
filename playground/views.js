// Views of one pass: each draws into an element of its own and can be asked to draw again.
const CarryViews = (() => {
  const { dot, row } = CarryMaths;
  const { digits, answer, readProbe } = CarryModel;
  const { PLACES } = CarryState;
  const SYMBOLS = "0123456789+=";
  const CLASSES = ["NC", "C@1", "C@2", "C all", "C all con."]; // carry classes (Sec. 2)
  const DRAWN = ["svg", "g", "rect", "circle", "line", "path", "text"]; // elements of SVG

  const $ = (/** @type {string} */ id) => /** @type {any} */ (document.getElementById(`pg-${id}`));

  /** @type {(name: string, attributes?: Record<string, any>, ...children: (string | Node)[]) => any} a new element */
  function make(name, attributes = {}, ...children) {
    const space = DRAWN.includes(name) ? "2000/svg" : "1999/xhtml";
    const element = document.createElementNS(`http://www.w3.org/${space}`, name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
      else element.setAttribute(key, value);
    }
    element.append(...children);
    return element;
  }

  /** @type {(element: HTMLElement, steps: Record<string, number>, act: (by: number) => void) => void} */
  function onKeys(element, steps, act) {
    element.addEventListener("keydown", (event) => {
      if (!steps[event.key]) return;
      event.preventDefault();
      event.stopPropagation(); // the theme turns pages by arrows
      act(steps[event.key]);
    });
  }

  const percent = (/** @type {number} */ x) => `${(100 * x).toFixed(x > 0.9995 || x < 0.0005 ? 0 : 1)}%`;
  const yes = (/** @type {any} */ x) => (x ? "yes" : "no");
  const token = (/** @type {Pass} */ { tokens }, /** @type {number} */ i) => `“${SYMBOLS[tokens[i]]}” (position ${i})`;
  /** @param {string} name of a point of the stream, such as blocks.1.resid_mid */
  const where = (name) => `after layer ${name.split(".")[1]}’s ${name.endsWith("resid_mid") ? "attention" : "MLP"}`;

  /** @type {(found: number, right: number) => keyof Outcome} how a digit misses, modulo ten; + and = are wrong */
  function miss(found, right) {
    const apart = found > 9 ? 5 : (found - right + 10) % 10;
    return apart === 0 ? "correct" : apart === 1 ? "one too large" : apart === 9 ? "one too small" : "wrong";
  }

  /** @summary The wires of a full adder at each column (App. I). @param {Sum} sum @param {number} width */
  function schoolbook([a, b], width) {
    const [left, right] = [digits(a, width), digits(b, width)];
    const total = left.map((x, i) => x + right[i]);
    const carry_in = Array(width).fill(0);
    for (let i = width - 1; i > 0; i--) carry_in[i - 1] = Number(total[i] + carry_in[i] > 9);
    const [ones, tens] = [total.map((x) => x % 10), total.map((x) => Number(x > 9))];
    return { total, ones, tens, carry_in, digit: digits(a + b, width) };
  }

  /** @type {(sum: Sum, width: number, found: number[]) => string[]} a sentence for each wrong digit of an answer */
  function misses(sum, width, found) {
    const { digit, carry_in } = schoolbook(sum, width);
    return digit.flatMap((right, i) => {
      const how = miss(found[i], right);
      if (how === "correct") return [];
      const start = `The ${PLACES[i]} digit is ${how}`;
      if (how === "one too large" && !carry_in[i]) return `${start}: the model carried where no carry was due.`;
      if (how === "one too small" && carry_in[i]) return `${start}: the carry from the ${PLACES[i + 1]} was not added.`;
      return `${start}.`;
    });
  }

  /** @summary The answer in words, for the page's live region. @param {Pass} pass */
  function spoken({ run, sum, cache }) {
    const found = answer(run, cache.logits).digits;
    const sentences = misses(sum, run.config.width, found);
    const text = `${sum.join(" + ")} = ${found.map((digit) => SYMBOLS[digit]).join("")}`;
    if (!sentences.length) return `${text}, correct.`;
    return `${text}, not ${digits(sum[0] + sum[1], run.config.width).join("")}. ${sentences.join(" ")}`;
  }

  /** @type {(caption: string, head: string[], rows: (string | Node)[][]) => any} each row's first cell names it */
  function table(caption, head, rows) {
    const top = make("tr", {}, ...head.map((text) => make("th", { scope: "col" }, text)));
    const line = (/** @type {(string | Node)[]} */ [name, ...cells]) =>
      make("tr", {}, make("th", { scope: "row" }, name), ...cells.map((cell) => make("td", {}, cell)));
    const parts = [make("caption", {}, caption), make("thead", {}, top), make("tbody", {}, ...rows.map(line))];
    return make("table", { class: "pg-table" }, ...parts);
  }

  /** @summary The class of a digit that is one too large, one too small or wrong. @param {keyof Outcome} how */
  const missClass = (how) => (how === "correct" ? "" : `pg-wrong pg-${how.replace(/ /g, "-")}`);

  /** @type {View} the answer's digits, those that are wrong marked */
  function showDigits(root, { run, sum: [a, b], cache }) {
    const right = digits(a + b, run.config.width);
    const shown = answer(run, cache.logits).digits.map((digit, i) => {
      return make("span", { class: missClass(miss(digit, right[i])) }, SYMBOLS[digit]);
    });
    root.replaceChildren(...shown);
  }

  /** @summary The digits with the probabilities of each. @type {View} */
  function showAnswer(root, { run, sum: [a, b], cache }) {
    const [found, right] = [answer(run, cache.logits), digits(a + b, run.config.width)];
    const columns = found.digits.map((digit, i) => {
      const how = miss(digit, right[i]);
      const bars = found.probabilities[i].slice(0, 10).map((p, value) => {
        const bar = [make("span", {}, String(value)), make("i"), make("b", {}, p < 0.0005 ? "" : percent(p))];
        return make("li", { class: value === right[i] ? "is-right" : "", style: `--p: ${p}` }, ...bar);
      });
      const heading = make("b", {}, PLACES[i]);
      const said = make("small", { class: missClass(how) }, how === "correct" ? how : `${how}, not ${right[i]}`);
      const list = make("ol", { "aria-label": `Probabilities of the ${PLACES[i]} digit` }, ...bars);
      return make("div", { class: "pg-column" }, heading, said, list);
    });
    root.replaceChildren(...columns);
  }

  /** @type {(title: string, button?: any) => any} of a head's attention, a button if it has the attributes of one */
  function attentionMap(title, button = null) {
    const svg = make("svg", { viewBox: "0 0 110 110", "aria-hidden": "true" });
    const heading = make("span", {}, title, make("span", { class: "pg-state" }));
    const element = make(button ? "button" : "figure", { class: "pg-map", ...button }, heading, svg);
    const ten = [...Array(10).keys()].map((i) => 10 + i * 10);
    const labels = [...ten.map((y) => ({ x: 5, y: y + 8 })), ...ten.map((x) => ({ x: x + 5, y: 8 }))];
    const texts = labels.map((where) => make("text", where));
    const squares = ten.flatMap((y) => ten.map((x) => make("rect", { width: 9.4, height: 9.4, x, y })));
    svg.append(make("rect", { class: "pg-map-ground", x: 10, y: 10, width: 100, height: 100 }), ...texts, ...squares);
    function draw(/** @type {ArrayLike<number>} */ pattern, /** @type {ArrayLike<any>} */ tokens) {
      texts.forEach((text, i) => (text.textContent = SYMBOLS[tokens[i % 10]] || tokens[i % 10]));
      squares.forEach((square, i) => square.setAttribute("fill-opacity", pattern[i].toFixed(3)));
    }
    return { element, svg, draw };
  }

  /** @summary Query and key at a pointer on a map, or nothing. @param {SVGElement} svg @param {MouseEvent} event */
  function cellAt(svg, event) {
    const box = svg.getBoundingClientRect();
    const shares = [(event.clientY - box.top) / box.height, (event.clientX - box.left) / box.width];
    const cell = shares.map((share) => Math.floor(11 * share) - 1);
    return cell.every((i) => i >= 0 && i < 10) ? cell : null;
  }

  /** @summary What a run's probes of a kind read, beside what is so. @param {Pass} pass @param {string} label */
  function readings({ run, sum, cache, intact }, label) {
    const right = schoolbook(sum, run.config.width)[/** @type {"ones"} */ (label)];
    const all = run.probes.map((probe, i) => {
      const [before, now] = [intact, cache].map((x) => readProbe(run, i, x));
      return { ...probe, before, now, truth: Number(right[probe.column]) };
    });
    return all.filter((probe) => probe.label === label);
  }

  /** @type {View} */
  function showProbes(root, pass) {
    const titles = ["Digit sum, its last digit", "Digit sum is ten or more", "Carry-in", "Answer digit"];
    const rows = ["ones", "tens", "carry_in", "digit"].map((label, i) => {
      const found = readings(pass, label);
      const word = (/** @type {number} */ x) => (i === 1 || i === 2 ? yes(x) : String(x));
      const cells = PLACES.map((_, column) => {
        const probe = found.find((probe) => probe.column === column);
        if (!probe) return "–";
        const { truth, before, now, position, accuracy } = probe;
        const title = `at position ${position}; correct for ${percent(accuracy)} of other sums`;
        const notes = [truth === now ? "" : ` is ${word(truth)}`, before === now ? "" : ` was ${word(before)}`];
        const said = make("span", { class: truth === now ? "pg-ok" : "pg-wrong" }, word(now));
        return make("div", { title }, said, ...notes.map((note) => make("small", {}, note)));
      });
      return [make("span", {}, titles[i], make("small", {}, where(found[0].name))), ...cells];
    });
    root.replaceChildren(table("Linear probes", ["What is read", ...PLACES], rows));
  }

  /** @type {View} the planes of Fig. 4 with the current sum: a ring where it is intact, a dot where it is now */
  function showPlanes(root, { run, sum, cache, intact }) {
    const known = run.planes[0].sums || [];
    const panels = run.planes.map(({ name, position, column, label, centre }, i) => {
      const [axes, points] = [run.weights[`plane.${i}.axes`], run.weights[`plane.${i}.points`].data];
      const isSo = (/** @type {Sum} */ other) => schoolbook(other, run.config.width)[label][column];
      const project = (/** @type {Activations} */ x) =>
        centre.map((mean, axis) => dot(row(axes, axis), row(x[name], position)) - mean);
      const [before, now] = [project(intact), project(cache)];
      const others = known.map((_, j) => [points[2 * j], points[2 * j + 1]]);
      const all = [...others, before, now];
      const [across, up] = [0, 1].map((axis) => 1.08 * Math.max(...all.map((x) => Math.abs(x[axis]))));
      const place = (/** @type {number[]} */ [x, y]) => [50 + (48 * x) / across, 50 - (48 * y) / up];
      const shape = { yes: "h3.2l-1.6 -3z", no: "a1.3 1.3 0 1 0 2.6 0a1.3 1.3 0 1 0 -2.6 0" };
      const drawn = { yes: "", no: "" }; // one path for all sums of a kind: a slider draws this many times a second
      known.forEach((other, j) => {
        const kind = isSo(other) ? "yes" : "no";
        const [x, y] = place(others[j]).map((value) => value.toFixed(1));
        drawn[kind] += `M${x} ${y}m${kind === "yes" ? "-1.6 1.4" : "-1.3 0"}${shape[kind]}`;
      });
      const dots = Object.entries(drawn).map(([kind, d]) => make("path", { class: `pg-${kind}`, d }));
      const [[x0, y0], [x1, y1]] = [place(before), place(now)];
      const moved = make("line", { class: "pg-moved", x1: x0, y1: y0, x2: x1, y2: y1 });
      const ring = make("circle", { class: "pg-before", cx: x0, cy: y0, r: 3 });
      const disc = make("circle", { class: "pg-now", cx: x0, cy: y0, r: 3, "data-cx": x1, "data-cy": y1 });
      const described = `This sum at ${now.map((x) => x.toFixed(1)).join(", ")} on the two leading axes`;
      const image = { viewBox: "0 0 100 100", role: "img", "aria-label": described };
      const truth = `${label === "tens" ? "ten or more" : "carry-in"}: ${yes(isSo(sum))}`;
      const caption = make("figcaption", {}, `${PLACES[column]}, ${where(name)}`, make("small", {}, truth));
      return make("figure", { class: "pg-plane" }, caption, make("svg", image, ...dots, moved, ring, disc));
    });
    root.replaceChildren(...panels);
    for (const point of root.querySelectorAll(".pg-now")) {
      getComputedStyle(point).getPropertyValue("cx"); // where it starts from, so that the style sheet moves it
      for (const axis of ["cx", "cy"]) point.setAttribute(axis, String(point.getAttribute(`data-${axis}`)));
    }
  }

  const words = { SYMBOLS, PLACES, CLASSES, percent, token, where, misses, spoken };
  const drawn = { $, make, onKeys, table, attentionMap, cellAt, showDigits, showAnswer, showProbes, showPlanes };
  return { ...words, ...drawn, miss, missClass, schoolbook, readings };
})();
