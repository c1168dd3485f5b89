// The parts of a run that can be switched off, and what to put in their place.
"use strict";

/** @typedef {{ label: string, title: string, field: "heads" | "mlps" | "skips" | "names" | "neurons", value: any }} Part */

const CarryControls = (() => {
  const { make } = CarryViews;
  /** @type {Record<string, string>} */
  const HOW = { Ablation: "zero", MeanAblation: "its mean", Patch: "what it is for another sum" };

  /** The switches of a layer, in the order of the pass.
   * @param {Config} config @param {number} layer @returns {Part[]} */
  function parts(config, layer) {
    const heads = Array.from({ length: config.heads }, (_, head) => ({ label: `head ${layer}:${head}`, title: "", field: /** @type {"heads"} */ ("heads"), value: [layer, head] }));
    return [
      ...heads,
      { label: "skip past attention", title: `layer ${layer}`, field: "skips", value: layer },
      { label: `MLP ${layer}`, title: "", field: "mlps", value: layer },
      { label: "skip past MLP", title: `layer ${layer}`, field: "names", value: `blocks.${layer}.mlp.skip` },
    ];
  }

  /** @param {Intervention | null} part @param {Part["field"]} field @param {any} value */
  const isOff = (part, field, value) => ((part && part[field]) || []).some((/** @type {any} */ each) => String(each) === String(value));

  /** The intervention with one part switched.
   * @param {Intervention | null} part @param {Part["field"]} field @param {any} value */
  function toggled(part, field, value) {
    /** @type {any} */
    const from = part || { kind: "Ablation" };
    const others = (from[field] || []).filter((/** @type {any} */ each) => String(each) !== String(value));
    const values = isOff(part, field, value) ? others : [...others, value];
    return { ...from, [field]: values.sort((/** @type {any} */ x, /** @type {any} */ y) => [x].flat()[0] - [y].flat()[0] || [x].flat()[1] - [y].flat()[1]) };
  }

  /** A strip of switches for a layer's neurons, as bright as they are active.
   * @param {Config} config @param {number} layer @param {(field: "neurons", value: number[]) => void} toggle */
  function neurons(config, layer, toggle) {
    const cells = Array.from({ length: config.d_ff }, (_, i) =>
      make("button", { type: "button", class: "pg-neuron", "aria-pressed": "false", "aria-label": `neuron ${layer}:${i}`, tabindex: i ? -1 : 0, onclick: () => toggle("neurons", [layer, i]) }),
    );
    const grid = make("div", { class: "pg-neurons", role: "group", "aria-label": `Neurons of MLP ${layer}; arrow keys move` }, ...cells);
    grid.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 16, ArrowUp: -16 }[event.key];
      const next = step && cells[cells.indexOf(document.activeElement) + step];
      if (!next) return;
      event.preventDefault();
      cells.forEach((cell) => (cell.tabIndex = cell === next ? 0 : -1));
      next.focus();
    });
    /** @param {Tensor} post @param {number} position @param {Intervention | null} part */
    function draw(post, position, part) {
      const values = CarryMaths.row(post, position);
      const most = Math.max(...values, 1e-6);
      cells.forEach((cell, i) => {
        cell.style.setProperty("--p", (values[i] / most).toFixed(2));
        cell.title = `neuron ${layer}:${i}, ${values[i].toFixed(2)}`;
        cell.setAttribute("aria-pressed", String(isOff(part, "neurons", [layer, i])));
      });
    }
    return { grid, draw };
  }

  return { HOW, parts, isOff, toggled, neurons };
})();
