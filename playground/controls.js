// The parts of a run that can be switched off, and those that are.
const CarryControls = (() => {
  const { make, onKeys } = CarryViews;

  /** @summary What a button has that switches a part; main.js listens. @param {Field} field @param {any} value */
  const switching = (field, value) => ({ type: "button", "data-field": field, "data-value": JSON.stringify(value) });

  /** @summary The switches of a layer, in the order of the pass. @param {Config} config @param {number} layer */
  function switches({ heads }, layer) {
    const parts = /** @type {[string, Field, any][]} */ ([
      ...Array.from(Array(heads), (_, head) => [`head ${layer}:${head}`, "heads", [layer, head]]),
      ["skip past attention", "skips", layer],
      [`MLP ${layer}`, "mlps", layer],
      ["skip past MLP", "names", `blocks.${layer}.mlp.skip`],
    ]);
    const button = (/** @type {[string, Field, any]} */ [label, field, value]) =>
      make("button", { class: "pg-switch", ...switching(field, value) }, label);
    return make("fieldset", {}, make("legend", {}, `Layer ${layer}`), ...parts.map(button));
  }

  /** @type {(parts: Intervention[], field: Field, value: any) => boolean} */
  const isOff = (parts, field, value) => parts.some((part) => part[field]?.map(String).includes(String(value)));

  /** @type {Toggle} interventions with one part back on, or off by the last of them or (`how`) by a new one */
  function toggled(parts, field, value, how) {
    if (isOff(parts, field, value)) {
      const rest = (/** @type {any[]} */ values = []) => values.filter((x) => String(x) !== String(value));
      return CarryState.tidy(parts.map((part) => ({ ...part, [field]: rest(part[field]) })));
    }
    const last = how || parts[parts.length - 1];
    const order = (/** @type {any} */ x) => [x].flat().map((i) => String(i).padStart(4, "0")).join();
    const more = [...(last[field] || []), value].sort((x, y) => (order(x) < order(y) ? -1 : 1));
    return CarryState.tidy([...(how ? parts : parts.slice(0, -1)), { ...last, [field]: more }]);
  }

  /** @summary Switches of neurons, as bright as they are active. @param {Config} config @param {number} layer */
  function neurons({ d_ff }, layer) {
    const cells = Array.from(Array(d_ff), (_, i) => {
      const named = { "aria-label": `neuron ${layer}:${i}`, tabindex: i ? -1 : 0 };
      return make("button", { class: "pg-neuron", ...named, ...switching("neurons", [layer, i]) });
    });
    const label = `Neurons of MLP ${layer}; arrow keys move`;
    const grid = make("div", { class: "pg-neurons", role: "group", "aria-label": label }, ...cells);
    onKeys(grid, { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 16, ArrowUp: -16 }, (step) => {
      const next = cells[cells.indexOf(document.activeElement) + step];
      if (next) cells.forEach((cell) => (cell.tabIndex = cell === next ? 0 : -1));
      next?.focus();
    });
    function draw(/** @type {Tensor} */ post, /** @type {number} */ position) {
      const active = CarryMaths.row(post, position);
      const most = Math.max(...active, 1e-6);
      cells.forEach((cell, i) => {
        cell.style.setProperty("--p", (active[i] / most).toFixed(2));
        cell.title = `neuron ${layer}:${i}, ${active[i].toFixed(2)}`;
      });
    }
    return { grid, draw };
  }
  return { switching, switches, isOff, toggled, neurons };
})();
