// The architecture as a panel of switches: the residual stream of each position, and the parts that read and write it.
const CarryPanel = (() => {
  const { make, onKeys, miss, missClass, schoolbook, SYMBOLS } = CarryViews;
  const { switching } = CarryControls;
  // Of a cell in which the stream passes a part: ten lines in a box of 100 by 50, from which the part reads below and
  // to which it adds above, by wires that end under its button.
  const LINES = [...Array(10).keys()].map((i) => 5 + 10 * i);
  const [READS, ADDS, END] = [40, 10, 120];

  /** @summary A row's stream, which is a switch of the path past the part. @param {string} past @param {any} switched */
  function streamPast(past, switched) {
    const image = { viewBox: "0 0 100 50", preserveAspectRatio: "none", "aria-hidden": "true" };
    const lines = LINES.flatMap((x) => [
      make("path", { d: `M${x} 0V${ADDS}M${x} ${READS}V50` }),
      make("path", { class: "pg-past", d: `M${x} ${ADDS}V${READS}` }),
    ]);
    const between = make("path", { class: "pg-wire", d: `M5 ${READS}H${END}M5 ${ADDS}H${END}` });
    const label = make("span", {}, "skip", make("small", { class: "pg-state" }));
    const svg = make("svg", image, ...lines, between);
    return make("button", { class: "pg-skip", ...switched, "aria-label": `skip path past ${past}` }, svg, label);
  }

  /** @summary A part's button. @param {string} name @param {string} role @param {any} switched */
  const partButton = (name, role, switched) =>
    make("button", { class: "pg-part", ...switched }, make("b", {}, name), make("small", {}, role), state());
  const state = () => make("small", { class: "pg-state" });

  /** @summary Ten slots, one for each position. @param {string} what @param {string} name */
  function slots(what, name) {
    const cells = LINES.map(() => make("span"));
    const row = make("div", { class: `pg-slots pg-${what}` }, ...cells);
    return { row, cells, note: make("div", { class: "pg-net-note" }, name) };
  }

  /** @summary The rows of a layer: each with its skip path and its parts. @param {Run} run @param {number} layer */
  function rowsOf({ config, decision_head }, layer) {
    const isLast = layer === config.layers - 1;
    const heads = [...Array(config.heads).keys()].map((head) => {
      const role = isLast && head === decision_head ? "decision head" : "";
      return partButton(`head ${layer}:${head}`, role, switching("heads", [layer, head]));
    });
    const mlp = partButton(`MLP ${layer}`, isLast ? "final MLP" : "", switching("mlps", layer));
    const pastHeads = streamPast(`the heads of layer ${layer}`, switching("skips", layer));
    const pastMLP = streamPast(`MLP ${layer}`, switching("names", `blocks.${layer}.mlp.skip`));
    return { attention: { skip: pastHeads, parts: heads }, mlp: { skip: pastMLP, parts: [mlp] } };
  }

  /** @summary The panel of a run; it is one stop of the Tab key, and arrow keys move in it. @param {Run} run */
  function panel(run) {
    const { config, decision_head } = run;
    const layers = [...Array(config.layers).keys()];
    const rows = layers.map((layer) => rowsOf(run, layer));
    const upwards = rows.flatMap(({ attention, mlp }) => [attention, mlp]);
    const downwards = [...upwards].reverse();
    const answer = slots("slots-answer", "answer, after the unembedding");
    const tokens = slots("slots-tokens", "the sum’s tokens, embedded");

    // A reader who hears the page meets the parts first, in the order of the pass; the grid puts each in its place.
    const place = (/** @type {any} */ element, /** @type {number} */ row, /** @type {number} */ column) => {
      element.style.gridArea = `${row} / ${column}`;
      return element;
    };
    const nRows = upwards.length + 2;
    const groups = upwards.map(({ parts }, i) => place(make("div", { class: "pg-parts" }, ...parts), nRows - 1 - i, 2));
    const skips = upwards.map(({ skip }, i) => place(skip, nRows - 1 - i, 1));
    const ends = [answer, tokens].flatMap(({ row, note }, i) => {
      return [place(row, i ? nRows : 1, 1), place(note, i ? nRows : 1, 2)];
    });
    const label = "Parts of the model; a pressed button is a part that is off; arrow keys move";
    const group = { class: "pg-net", role: "group", "aria-label": label };
    const element = make("div", group, ...groups, ...skips, ...ends);

    const grid = downwards.map(({ skip, parts }) => [skip, ...parts]);
    roving(element, grid, rows[config.layers - 1].attention.parts[decision_head]);

    function draw(/** @type {Pass} */ { sum, tokens: symbols, cache }) {
      const { digit } = schoolbook(sum, config.width);
      const found = CarryModel.answer(run, cache.logits).digits;
      tokens.cells.forEach((cell, i) => (cell.textContent = SYMBOLS[symbols[i]]));
      config.answer.forEach((position, i) => {
        const cell = answer.cells[position];
        cell.textContent = SYMBOLS[found[i]];
        cell.className = missClass(miss(found[i], digit[i]));
      });
    }
    return { element, draw };
  }

  /** @type {(element: HTMLElement, grid: any[][], first: any) => void} one of the buttons is reached by Tab */
  function roving(element, grid, first) {
    const buttons = grid.flat();
    const reach = (/** @type {any} */ chosen) =>
      buttons.forEach((button) => (button.tabIndex = button === chosen ? 0 : -1));
    const move = (/** @type {number} */ down, /** @type {number} */ across) => {
      const row = grid.findIndex((cells) => cells.includes(document.activeElement));
      const next = grid[Math.min(grid.length - 1, Math.max(0, row + down))];
      const column = grid[row].indexOf(document.activeElement) + across;
      next[Math.min(next.length - 1, Math.max(0, column))].focus();
    };
    onKeys(element, { ArrowUp: -1, ArrowDown: 1 }, (by) => move(by, 0));
    onKeys(element, { ArrowLeft: -1, ArrowRight: 1 }, (by) => move(0, by));
    element.addEventListener("focusin", ({ target }) => reach(target));
    reach(first);
  }
  return { panel };
})();
