// A hundred random sums under the intervention that is switched on: Table 1 by hand.
"use strict";

const CarryExperiment = (() => {
  const { make, percent, miss, schoolbook, PLACES, CLASSES } = CarryViews;
  const EACH = 20;

  /** The carry class of a sum (Sec. 2), as an index.
   * @param {[number, number]} sum */
  function classify(sum) {
    const { total, carry_in } = schoolbook(sum, 3);
    if (carry_in[0]) return carry_in[1] ? (total[1] === 9 ? 4 : 3) : 1;
    return carry_in[1] ? 2 : 0;
  }

  /** A random sum of a class.
   * @param {number} wanted @returns {[number, number]} */
  function draw(wanted) {
    for (;;) {
      const [a, b] = [0, 0].map(() => Math.floor(1000 * Math.random()));
      if (a + b < 1000 && classify([a, b]) === wanted) return [a, b];
    }
  }

  /** Outcomes `[class][column]`, added to as sums are answered.
   * @returns {Outcome[][]} */
  const counts = () =>
    CLASSES.map(() => PLACES.map(() => ({ right: 0, "one too small": 0, "one too large": 0, wrong: 0 })));

  /** Answer one sum of each class and count.
   * @param {Run} run @param {Hook} hook @param {Outcome[][]} found */
  function answerEach(run, hook, found) {
    found.forEach((columns, carryClass) => {
      const [a, b] = draw(carryClass);
      const { logits } = CarryModel.forward(run, CarryModel.encode(run.config, a, b), hook);
      const answered = CarryModel.answer(run, logits).digits;
      const right = CarryModel.digits(a + b, run.config.width);
      right.forEach((digit, i) => columns[i][miss(answered[i], digit)]++);
    });
  }

  /** @param {HTMLElement} root @param {Outcome[][]} found @param {string} under */
  function show(root, found, under) {
    const sums = Object.values(found[0][0]).reduce((x, y) => x + y, 0);
    const rows = found.map((columns, carryClass) => {
      const cells = columns.map((outcome) => {
        const outcomes = Object.entries(outcome).filter(([, n]) => n);
        const name = (/** @type {string} */ how) => `pg-is-${how.replace(/ /g, "-")}`;
        const bar = outcomes.map(([how, n]) => make("i", { class: name(how), style: `flex-grow: ${n}` }));
        const shares = outcomes.map(([how, n]) => make("small", {}, `${percent(n / sums)} ${how}`));
        return make("div", {}, make("span", { class: "pg-bar", "aria-hidden": "true" }, ...bar), ...shares);
      });
      return [CLASSES[carryClass], ...cells];
    });
    const caption = `${sums * CLASSES.length} random sums, ${sums} of each class, ${under}`;
    root.replaceChildren(CarryViews.table(caption, ["Carry class", ...PLACES], rows));
  }

  return { EACH, counts, answerEach, show };
})();
