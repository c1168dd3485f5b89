// Sliders that hold the coordinates of a carry and of a nine, and the digits that the model then answers.
const CarryCoordinate = (() => {
  const { make, PLACES, SYMBOLS } = CarryViews;
  const { coordinate, digitAt, linesOf, stretches } = CarryModel;
  const { low, high } = CarryState.RANGE;
  const NARROW = 0.06; // of the range: a shorter stretch has no room for its digit

  /** @summary A place on the range, from 0 to 1. @param {number} value */
  const share = (value) => (Math.min(high, Math.max(low, value)) - low) / (high - low);
  const rounded = (/** @type {number} */ x) => `${Math.round(100 * x)}%`;
  /** @type {(name: string, value: number, ...children: any[]) => any} a mark on the track */
  const mark = (name, value, ...children) =>
    make("span", { class: name, style: `--at: ${share(value).toFixed(4)}` }, ...children);

  /** @type {(found: Stretch[]) => string} in words: 5 up to 0.47, then 6 */
  function inWords(found) {
    const ends = found.slice(1).map(({ from }, i) => `${SYMBOLS[found[i].digit]} up to ${from.toFixed(2)}`);
    const last = SYMBOLS[found[found.length - 1].digit];
    return ends.length ? `${ends.join(", ")}, then ${last}` : `${last} at every coordinate`;
  }

  /** @type {(line: Line, place: string) => string[]} the label of a line's slider, and its ends */
  const words = ({ id }, place) =>
    id.endsWith("-nine")
      ? [`A nine to the right of the ${place}`, "0, less than nine", "1, nine"]
      : [`Carry into the ${place}`, "0, no carry", "1, carry"];

  /** @type {(line: FittedLine, suffix: string, hold: (held: number) => void) => any} the slider of a line */
  function slider(line, suffix, hold) {
    const place = PLACES[line.column];
    const [name, zero, one] = words(line, place);
    const id = `pg-line-${line.id}${suffix}`;
    const range = { type: "range", min: low, max: high, step: 0.01, id, "aria-describedby": `${id}-said` };
    const input = make("input", { ...range, oninput: () => hold(Number(input.value)) });
    const value = make("output", { for: id });
    const said = make("p", { class: "pg-hint", id: `${id}-said` });
    const strip = make("div", { class: "pg-strip", "aria-hidden": "true" });
    const ends = [mark("pg-tick", 0, zero), mark("pg-tick", 1, one)];
    const scale = make("div", { class: "pg-scale", "aria-hidden": "true" }, ...ends);
    const label = make("label", { for: id }, name);
    const head = make("p", { class: "pg-row" }, label, value);
    const element = make("div", { class: "pg-coordinate" }, head, input, strip, scale, said);

    /** @type {(pass: Pass, held: number | undefined, found: Stretch[]) => void} */
    function draw({ unheld, intact }, held, found) {
      const [own, before] = [unheld, intact].map((x) => coordinate(line, CarryMaths.row(x[line.name], line.position)));
      const at = held ?? own;
      const { digit } = [...found].reverse().find(({ from }) => at >= from) || found[0];
      if (Number(input.value) !== at) input.value = String(at);
      input.setAttribute("aria-valuetext", `${at.toFixed(2)}, the model answers ${SYMBOLS[digit]}`);
      value.textContent = `${at.toFixed(2)}${held === undefined ? "" : ", held"}`;
      const pieces = found.map(({ from, digit }, i) => {
        const width = share(found[i + 1]?.from ?? high) - share(from);
        const style = `flex-grow: ${width.toFixed(4)}`;
        return make("span", { class: i % 2 ? "pg-odd" : "", style }, width < NARROW ? "" : SYMBOLS[digit]);
      });
      strip.replaceChildren(...pieces, mark("pg-own pg-intact", before), mark("pg-own", own));
      const moved = own.toFixed(2) === before.toFixed(2) ? "" : ` (${before.toFixed(2)} with every part in place)`;
      said.textContent = `The ${place} digit is ${inWords(found)}. This sum is at ${own.toFixed(2)}${moved}.`;
    }
    return { element, line, draw };
  }

  /** @type {(run: Run, suffix: string, hold: (id: string, value: number) => void) => any} sliders, or why there is none */
  function sliders(run, suffix, hold) {
    if (!run.lines.length) {
      const why = "No line was measured in this model, which has one layer.";
      return { elements: [make("p", {}, why)], draw() {} };
    }
    const all = linesOf(run).map((line) => slider(line, suffix, (value) => hold(line.id, value)));
    const share = (/** @type {string} */ id) => rounded(/** @type {Line} */ (run.lines.find((x) => x.id === id)).share);
    const columns = new Set(run.lines.map(({ column }) => PLACES[column]));
    const swapped = [...columns].map((place) => {
      return `${share(place)} of pairs at the ${place} (${share(`${place}-nine`)} with the nine's, too)`;
    });
    const text = `Swap the carry's coordinate between two sums. In the pair of states where that works least, the digit
      becomes the other sum's in ${swapped.join(", in ")}. → `;
    const page = make("a", { href: "../notebooks/one_line_carries.html" }, "The carry as one number, or two");
    const tested = make("p", { class: "pg-hint" }, text, page);
    const known = all.map(() => ({ key: "", found: /** @type {Stretch[]} */ ([]) }));

    function draw(/** @type {Pass} */ pass, /** @type {State} */ state) {
      all.forEach(({ line, draw }, i) => {
        const { [line.id]: held, ...others } = state.line;
        const key = JSON.stringify([state.run, state.sum, state.do, others]);
        if (key !== known[i].key) {
          known[i] = { key, found: stretches(digitAt(run, line, pass, others), low, high) };
        }
        draw(pass, held, known[i].found);
      });
    }
    return { elements: [...all.map(({ element }) => element), tested], draw };
  }
  return { sliders };
})();
