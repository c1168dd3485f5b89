// A slider over training: the loss, and what heads attend to (Fig. 2) or which digits are correct without the final MLP
// (Fig. 5).
const CarryTraining = (() => {
  const { $, make, attentionMap, table, percent, PLACES, CLASSES } = CarryViews;
  const [WIDTH, HEIGHT] = [600, 110];

  /** @type {(title: string, curves: ArrayLike<number>[], height: (x: number) => number) => any} with a cursor */
  function panel(title, curves, height) {
    const cursor = make("line", { class: "pg-moved", y1: 0, y2: HEIGHT });
    const lines = curves.map((curve, i) => {
      const points = Array.from(curve, (x, j) => `${(WIDTH * j) / (curve.length - 1)} ${HEIGHT * (1 - height(x))}`);
      return make("path", { class: `pg-arc pg-curve-${i}`, d: `M${points.join("L")}` });
    });
    const image = { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" };
    const caption = make("figcaption", {}, title);
    return make("figure", { class: "pg-plane" }, caption, make("svg", image, ...lines, cursor));
  }

  /** @param {Float32Array} cells shares of correct digits without the final MLP, [class, place] */
  function ablated(cells) {
    const cell = (/** @type {number} */ p) => make("span", { class: "pg-cell", style: `--p: ${p}` }, percent(p));
    const rows = CLASSES.map((name, j) => [name, ...PLACES.map((_, place) => cell(cells[3 * j + place]))]);
    return table("Correct digits with the final MLP ablated", ["Carry class", ...PLACES], rows);
  }

  /** @param {any} packed what carry_paper/pages/playground.py packed of a group's histories */
  async function show(packed) {
    $("training").hidden = false;
    const { id, runs, epochs, shown, weights } = await CarryMaths.unpack(packed);
    const ids = runs.map((/** @type {number} */ run) => `${id}/${run}`);
    const [every, last] = [epochs[1] - epochs[0], epochs[epochs.length - 1]];
    const maps = weights.pattern ? [0, 1].map((head) => attentionMap(`head 0:${head}`)) : [];
    const INITIAL = /** @type {any} */ ({ run: `${id}/${shown.run}`, epoch: shown.epoch });
    let state = /** @type {State} */ ({});

    function history(/** @type {string} */ name) {
      const [, ...shape] = weights[name].shape;
      return { data: CarryMaths.row(weights[name], ids.indexOf(state.run)), shape };
    }

    function drawCurves() {
      const [train, test, digits] = ["train_loss", "test_loss", "test_accuracy"].map((name) => history(name).data);
      const logs = [...train, ...test].map(Math.log);
      const [low, high] = [Math.min(...logs), Math.max(...logs)];
      const range = [low, high].map((x) => Math.exp(x).toPrecision(1)).join(" to ");
      const title = `Loss, train and test (dashed), ${range} on a logarithmic scale`;
      const losses = panel(title, [train, test], (x) => (Math.log(x) - low) / (high - low));
      const places = PLACES.map((_, place) => digits.filter((_, j) => j % 3 === place));
      const accuracies = panel("Correct digits, 0 to 1: hundreds, tens (dashed), units (dotted)", places, (x) => x);
      $("curves").replaceChildren(losses, accuracies);
    }

    /** @param {Partial<State>} next @param {Problem[]} [problems] */
    function change(next, problems = []) {
      const before = state.run;
      state = { ...state, ...next };
      const i = Math.min(epochs.length - 1, Math.max(0, Math.round(state.epoch / every) - 1));
      state.epoch = epochs[i];
      if (state.run !== before) drawCurves();
      for (const cursor of $("curves").querySelectorAll(".pg-moved")) {
        for (const x of ["x1", "x2"]) cursor.setAttribute(x, (WIDTH * i) / (epochs.length - 1));
      }
      const now = CarryMaths.row(history(maps.length ? "pattern" : "test_ablated_accuracy"), i);
      maps.forEach(({ draw }, head) => draw(now.subarray(100 * head, 100 * head + 100), [..."***+***==="]));
      if (!maps.length) $("maps").replaceChildren(ablated(now));
      const [train, test] = ["train_loss", "test_loss"].map((name) => history(name).data[i].toPrecision(2));
      const digits = CarryMaths.row(history("test_accuracy"), i);
      const right = PLACES.map((place, j) => `${percent(digits[j])} of the ${place}`).join(", ");
      const losses = `loss ${train} in training, ${test} on test sums`;
      $("spoken").textContent = `Epoch ${state.epoch}: ${losses}. Correct digits: ${right}.`;
      $("run").value = state.run;
      $("epoch").value = state.epoch;
      $("epoch").setAttribute("aria-valuetext", `epoch ${state.epoch}`);
      $("line").textContent = problems.map(({ text }) => text).join(" ");
      window.history.replaceState(window.history.state, "", CarryState.format(state));
    }

    /** Do what the address says; a heading's address is left alone. */
    function follow() {
      const heading = location.hash && document.getElementById(location.hash.slice(1));
      if (heading && state.run) return;
      const hash = heading ? "" : location.hash;
      const { state: next, problems } = CarryState.parse(hash, INITIAL, { runs: ids, epochs: last });
      change(next, problems);
    }

    $("run").replaceChildren(...ids.map((/** @type {string} */ run, /** @type {number} */ i) =>
      make("option", { value: run }, `run ${runs[i]}`))); // prettier-ignore
    $("run").addEventListener("change", () => change({ run: $("run").value }));
    Object.assign($("epoch"), { min: every, max: last, step: every });
    $("epoch").addEventListener("input", () => change({ epoch: Number($("epoch").value) }));
    const colours = make("p", { class: "pg-colours" }, "attention 0 ", make("i"), " 1");
    $("maps").replaceChildren(...maps.map(({ element }) => element), ...(maps.length ? [colours] : []));
    window.addEventListener("hashchange", follow);
    follow();
  }
  const failed = (/** @type {Error} */ { message }) => ($("line").textContent = message);
  return { receive: (/** @type {any} */ packed) => show(packed).catch(failed) }; // called by the histories' script
})();
