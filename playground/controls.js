// The parts of a run that can be switched off, and those that are.
const CarryControls = (() => {
  const { make, onKeys } = CarryViews;
  const MOST_ACTIVE = 8; // neurons with a button of their own

  /** @summary What a button has that switches a part; main.js listens. @param {Field} field @param {any} value */
  const switching = (field, value) => ({ type: "button", "data-field": field, "data-value": JSON.stringify(value) });

  /** @summary Switches of the two parts that matter most, named for this run. @param {Run} run */
  function chips({ config, decision_head }) {
    const last = config.layers - 1;
    const head = make("button", switching("heads", [last, decision_head]), `decision head (${last}:${decision_head})`);
    return [head, make("button", switching("mlps", last), `final MLP (MLP ${last})`)];
  }

  /** @type {(parts: Intervention[], field: Field, value: any) => boolean} */
  const isOff = (parts, field, value) => parts.some((part) => part[field]?.map(String).includes(String(value)));
  const WORDS = { Ablation: "off", MeanAblation: "at its mean", Patch: "patched" };

  /** @type {(parts: Intervention[], field: Field, value: any) => string} what became of a part, in a word or two */
  function inAWord(parts, field, value) {
    const part = parts.find((part) => isOff([part], field, value));
    return part ? WORDS[part.kind] : "";
  }

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
    const move = (/** @type {number} */ step) => cells[cells.indexOf(document.activeElement) + step]?.focus();
    const inARow = () => getComputedStyle(grid).gridTemplateColumns.split(" ").length;
    onKeys(grid, { ArrowRight: 1, ArrowLeft: -1 }, move);
    onKeys(grid, { ArrowDown: 1, ArrowUp: -1 }, (by) => move(by * inARow()));
    grid.addEventListener("focusin", (/** @type {FocusEvent} */ { target }) => {
      cells.forEach((cell) => (cell.tabIndex = cell === target ? 0 : -1));
    });
    function draw(/** @type {Pass} */ { cache }, /** @type {number} */ position) {
      const active = CarryMaths.row(cache[`blocks.${layer}.mlp.post`], position);
      const most = Math.max(...active, 1e-6);
      cells.forEach((cell, i) => {
        cell.style.setProperty("--p", (active[i] / most).toFixed(2));
        cell.title = `neuron ${layer}:${i}, ${active[i].toFixed(2)}`;
      });
    }
    return { grid, draw };
  }

  /** @summary Switches of the final MLP's neurons that are most active in the intact model. @param {Config} config */
  function topNeurons({ layers }) {
    const layer = layers - 1;
    const buttons = Array.from(Array(MOST_ACTIVE), () => make("button", switching("neurons", null)));
    const group = { class: "pg-row", role: "group", "aria-label": "The most active neurons" };
    const element = make("div", group, ...buttons);
    function draw(/** @type {Pass} */ { intact }, /** @type {number} */ position) {
      const active = [...CarryMaths.row(intact[`blocks.${layer}.mlp.post`], position)];
      const order = active.map((_, i) => i).sort((i, j) => active[j] - active[i]);
      buttons.forEach((button, rank) => {
        const i = order[rank];
        button.dataset.value = JSON.stringify([layer, i]);
        button.replaceChildren(`${layer}:${i}`, make("small", {}, active[i].toFixed(1)));
      });
    }
    return { element, draw };
  }
  return { switching, chips, isOff, inAWord, toggled, neurons, topNeurons };
})();
