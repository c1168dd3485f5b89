// A hundred random sums under the intervention that is switched on: Table 1 by hand.
const CarryExperiment = (() => {
  const { make, percent, miss, schoolbook, PLACES, CLASSES } = CarryViews;
  const EACH = 20; // sums of each class
  const OUTCOME = { correct: 0, "one too small": 0, "one too large": 0, wrong: 0 };

  /** @summary The carry class of a sum (Sec. 2), as an index. @param {Sum} sum */
  function classify(sum) {
    const { total, carry_in } = schoolbook(sum, 3);
    const chained = carry_in[0] && carry_in[1] && total[1] === 9;
    return carry_in[0] + 2 * carry_in[1] + (chained ? 1 : 0);
  }

  /** @summary A random sum of a class. @param {number} wanted @returns {Sum} */
  function draw(wanted) {
    for (;;) {
      const [a, b] = [0, 0].map(() => Math.floor(1000 * Math.random()));
      if (a + b < 1000 && classify([a, b]) === wanted) return [a, b];
    }
  }

  const counts = () => CLASSES.map(() => PLACES.map(() => ({ ...OUTCOME }))); // added to as sums are answered

  /** @type {(runs: { run: Run, hook: Hook, found: Outcome[][] }[]) => void} all answer one sum of each class */
  function answerEach(runs) {
    CLASSES.forEach((_, carryClass) => {
      const [a, b] = draw(carryClass);
      for (const { run, hook, found } of runs) {
        const { logits } = CarryModel.forward(run, CarryModel.encode(run.config, a, b), hook);
        const { digits } = CarryModel.answer(run, logits);
        const right = CarryModel.digits(a + b, run.config.width);
        right.forEach((digit, i) => found[carryClass][i][miss(digits[i], digit)]++);
      }
    });
  }

  function show(/** @type {HTMLElement} */ root, /** @type {Outcome[][]} */ found, /** @type {string} */ under) {
    const sums = Object.values(found[0][0]).reduce((x, y) => x + y, 0);
    const cell = (/** @type {Outcome} */ outcome) => {
      const outcomes = Object.entries(outcome).filter(([, n]) => n);
      const name = (/** @type {string} */ how) => `pg-is-${how.replace(/ /g, "-")}`;
      const bar = outcomes.map(([how, n]) => make("i", { class: name(how), style: `flex-grow: ${n}` }));
      const shares = outcomes.map(([how, n]) => make("small", {}, `${percent(n / sums)} ${how}`));
      return make("div", {}, make("span", { class: "pg-bar", "aria-hidden": "true" }, ...bar), ...shares);
    };
    const rows = found.map((columns, i) => [CLASSES[i], ...columns.map(cell)]);
    const caption = `${sums * CLASSES.length} random sums, ${sums} of each class, ${under}`;
    root.replaceChildren(CarryViews.table(caption, ["Carry class", ...PLACES], rows));
  }
  return { EACH, counts, answerEach, show };
})();
