// A slider over training: where the heads of a one-layer run look (Fig. 2), or how many digits are right in each carry
// class when the final MLP is ablated (Fig. 5); and beside it the loss, and the intact model's digits.
"use strict";

const CarryTraining = (() => {
  const { make, attentionMap, table, percent, PLACES, CLASSES } = CarryViews;
  const TOKENS = [..."***+***==="];
  const [WIDTH, HEIGHT] = [600, 110];

  /** @param {string} id @returns {any} */
  const $ = (id) => document.getElementById(`pg-${id}`);

  /** A panel of curves over the epochs, with a cursor.
   * @param {string} title @param {ArrayLike<number>[]} curves @param {(x: number) => number} height from 0 to 1 */
  function panel(title, curves, height) {
    const cursor = make("line", { class: "pg-moved", y1: 0, y2: HEIGHT });
    const lines = curves.map((curve, i) => {
      const points = Array.from(curve, (x, j) => `${(WIDTH * j) / (curve.length - 1)} ${HEIGHT * (1 - height(x))}`);
      return make("path", { class: `pg-arc pg-curve-${i}`, d: `M${points.join("L")}` });
    });
    const svg = make("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" });
    svg.append(...lines, cursor);
    const element = make("figure", { class: "pg-plane" }, make("figcaption", {}, title), svg);
    /** @param {number} share of the epochs */
    const move = (share) => ["x1", "x2"].forEach((x) => cursor.setAttribute(x, String(WIDTH * share)));
    return { element, move };
  }

  /** Shares of right digits without the final MLP.
   * @param {Float32Array} cells [class, place] */
  function ablated(cells) {
    const cell = (/** @type {number} */ share) =>
      make("span", { class: "pg-cell", style: `--p: ${share}` }, percent(share));
    const rows = CLASSES.map((name, j) => [name, ...PLACES.map((_, place) => cell(cells[3 * j + place]))]);
    return table("Right digits with the final MLP ablated", ["Carry class", ...PLACES], rows);
  }

  /** Show what carry_core/plots/playground.py packed of a group's histories.
   * @param {any} packed */
  async function receive(packed) {
    const { id, runs, epochs, shown, weights } = await CarryMaths.unpack(packed);
    /** @type {string[]} */
    const ids = runs.map((/** @type {number} */ run) => `${id}/${run}`);
    const every = epochs[1] - epochs[0];
    const maps = weights.pattern ? [0, 1].map((head) => attentionMap(`head 0:${head}`, "figure")) : [];
    /** @type {ReturnType<typeof panel>[]} */
    let panels = [];
    /** @type {any} */
    const INITIAL = { run: `${id}/${shown.run}`, epoch: shown.epoch };
    let state = /** @type {State} */ ({});

    /** @param {Partial<State>} next @param {Problem[]} [problems] */
    function change(next, problems = []) {
      const before = state.run;
      state = { ...state, ...next };
      const i = Math.min(epochs.length - 1, Math.max(0, Math.round(state.epoch / every) - 1));
      state.epoch = epochs[i];
      const of = (/** @type {string} */ name) => {
        const [, n, ...rest] = weights[name].shape;
        const data = CarryMaths.row(weights[name], ids.indexOf(state.run));
        return { data, shape: [n, ...rest] };
      };
      const [train, test, digits] = ["train_loss", "test_loss", "test_accuracy"].map(of);
      if (state.run !== before) {
        const losses = [...train.data, ...test.data].map(Math.log);
        const [low, high] = [Math.min(...losses), Math.max(...losses)];
        const places = PLACES.map((_, place) => digits.data.filter((_, j) => j % 3 === place));
        const range = [low, high].map((x) => Math.exp(x).toPrecision(1)).join(" to ");
        const height = (/** @type {number} */ x) => (Math.log(x) - low) / (high - low);
        panels = [
          panel(`Loss, train and test (dashed), ${range} on a logarithmic scale`, [train.data, test.data], height),
          panel("Right digits, 0 to 1: hundreds, tens (dashed), units (dotted)", places, (x) => x),
        ];
        $("curves").replaceChildren(...panels.map(({ element }) => element));
      }
      for (const { move } of panels) move(i / (epochs.length - 1));
      const now = CarryMaths.row(of(maps.length ? "pattern" : "test_ablated_accuracy"), i);
      maps.forEach(({ draw }, head) => draw(now.subarray(100 * head, 100 * head + 100), TOKENS));
      if (!maps.length) $("maps").replaceChildren(ablated(now));
      const right = PLACES.map((place, j) => `${percent(digits.data[3 * i + j])} of the ${place}`);
      const losses = `loss ${train.data[i].toPrecision(2)} in training, ${test.data[i].toPrecision(2)} on test sums`;
      $("spoken").textContent = `Epoch ${state.epoch}: ${losses}; right are ${right.join(", ")}.`;
      $("run").value = state.run;
      $("epoch").value = state.epoch;
      $("epoch").setAttribute("aria-valuetext", `epoch ${state.epoch}`);
      $("line").textContent = problems.map(({ text }) => text).join(" ");
      history.replaceState(history.state, "", CarryState.format(state));
    }

    function follow() {
      const bounds = { runs: ids, epochs: epochs[epochs.length - 1] };
      const { state: next, problems } = CarryState.parse(location.hash, INITIAL, bounds);
      change(next, problems);
    }

    $("run").replaceChildren(...ids.map((run, i) => make("option", { value: run }, `run ${runs[i]}`)));
    $("run").addEventListener("change", () => change({ run: $("run").value }));
    Object.assign($("epoch"), { min: every, max: epochs[epochs.length - 1], step: every });
    $("epoch").addEventListener("input", () => change({ epoch: Number($("epoch").value) }));
    $("maps").replaceChildren(...maps.map(({ element }) => element));
    window.addEventListener("hashchange", follow);
    follow();
  }

  return {
    /** Called by the script of the histories.
     * @param {any} packed */
    receive(packed) {
      $("training").hidden = false;
      receive(packed).catch((error) => ($("line").textContent = error.message));
    },
  };
})();
