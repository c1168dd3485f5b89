// The parts of a run that can be switched off, and those that are.
"use strict";

const CarryControls = (() => {
  const { make } = CarryViews;

  /** The switches of a layer, in the order of the pass.
   * @param {Config} config @param {number} layer @returns {{ label: string, field: Field, value: any }[]} */
  function parts(config, layer) {
    return [
      ...Array.from({ length: config.heads }, (_, head) => (
        { label: `head ${layer}:${head}`, field: /** @type {Field} */ ("heads"), value: [layer, head] }
      )), // prettier-ignore
      { label: "skip past attention", field: "skips", value: layer },
      { label: `MLP ${layer}`, field: "mlps", value: layer },
      { label: "skip past MLP", field: "names", value: `blocks.${layer}.mlp.skip` },
    ];
  }

  /** @param {Intervention} part @param {Field} field @returns {any[]} */
  const values = (part, field) => part[field] || [];

  /** @param {Intervention[]} parts @param {Field} field @param {any} value */
  const isOff = (parts, field, value) => parts.some((part) => values(part, field).map(String).includes(String(value)));

  /** The interventions with one part back on, or off by the last of them.
   * @param {Intervention[]} parts @param {Field} field @param {any} value @param {any} how a new one's */
  function toggled(parts, field, value, how) {
    if (isOff(parts, field, value)) {
      const rest = (/** @type {Intervention} */ part) => values(part, field).filter((x) => String(x) !== String(value));
      return CarryState.tidy(parts.map((part) => ({ ...part, [field]: rest(part) })));
    }
    const last = how || parts[parts.length - 1];
    const order = (/** @type {any} */ x) => [x].flat().map((i) => String(i).padStart(4, "0")).join();
    const more = [...values(last, field), value].sort((x, y) => (order(x) < order(y) ? -1 : 1));
    return CarryState.tidy([...(how ? parts : parts.slice(0, -1)), { ...last, [field]: more }]);
  }

  /** A strip of switches for a layer's neurons, as bright as they are active.
   * @param {Config} config @param {number} layer @param {(field: Field, value: any) => void} toggle */
  function neurons(config, layer, toggle) {
    const cells = Array.from({ length: config.d_ff }, (_, i) =>
      make("button", {
        type: "button",
        class: "pg-neuron",
        "aria-label": `neuron ${layer}:${i}`,
        tabindex: i ? -1 : 0,
        onclick: () => toggle("neurons", [layer, i]),
      }),
    );
    const label = `Neurons of MLP ${layer}; arrow keys move`;
    const grid = make("div", { class: "pg-neurons", role: "group", "aria-label": label }, ...cells);
    grid.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 16, ArrowUp: -16 }[event.key];
      const next = step && cells[cells.indexOf(document.activeElement) + step];
      if (!next) return;
      event.preventDefault();
      event.stopPropagation();
      cells.forEach((cell) => (cell.tabIndex = cell === next ? 0 : -1));
      next.focus();
    });
    /** @param {Tensor} post @param {number} position @param {Intervention[]} parts */
    function draw(post, position, parts) {
      const active = CarryMaths.row(post, position);
      const most = Math.max(...active, 1e-6);
      cells.forEach((cell, i) => {
        cell.style.setProperty("--p", (active[i] / most).toFixed(2));
        cell.title = `neuron ${layer}:${i}, ${active[i].toFixed(2)}`;
        cell.setAttribute("aria-pressed", String(isOff(parts, "neurons", [layer, i])));
      });
    }
    return { grid, draw };
  }

  return { parts, isOff, toggled, neurons };
})();
