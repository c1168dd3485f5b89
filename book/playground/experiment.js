// A hundred random sums under the intervention that is switched on: Table 1 by hand.
"use strict";

const CarryExperiment = (() => {
  const { make, percent, miss, schoolbook, PLACES } = CarryViews;
  const CLASSES = ["NC", "C@1", "C@2", "C all", "C all con."];
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

  /** Outcomes `[class][column][how]`, added to as sums are answered. */
  const counts = () => CLASSES.map(() => PLACES.map(() => ({ right: 0, "one too small": 0, "one too large": 0, wrong: 0 })));

  /** Answer one sum of each class and count.
   * @param {Run} run @param {Hook | undefined} hook @param {ReturnType<typeof counts>} found */
  function answerEach(run, hook, found) {
    CLASSES.forEach((_, task) => {
      const [a, b] = draw(task);
      const answered = CarryModel.answer(run, CarryModel.forward(run, CarryModel.encode(run.config, a, b), hook).logits).digits;
      const right = CarryModel.digits(a + b, run.config.width);
      right.forEach((digit, column) => found[task][column][/** @type {"right"} */ (miss(answered[column], digit))]++);
    });
  }

  /** @param {HTMLElement} root @param {ReturnType<typeof counts>} found @param {string} under */
  function show(root, found, under) {
    const sums = Object.values(found[0][0]).reduce((x, y) => x + y, 0);
    const rows = found.map((columns, task) =>
      make("tr", {}, make("th", { scope: "row" }, CLASSES[task]), ...columns.map((outcome) => {
        const shares = Object.entries(outcome).filter(([, n]) => n).map(([how, n]) => `${percent(n / sums)} ${how}`);
        const bar = Object.entries(outcome).map(([how, n]) => make("i", { class: `pg-is-${how.replace(/ /g, "-")}`, style: `flex-grow: ${n}` }));
        return make("td", {}, make("span", { class: "pg-bar", "aria-hidden": "true" }, ...bar), ...shares.map((share) => make("small", {}, share)));
      })),
    ); // prettier-ignore
    const head = make("tr", {}, make("th", { scope: "col" }, "Carry class"), ...PLACES.map((place) => make("th", { scope: "col" }, place)));
    const caption = make("caption", {}, `${sums * CLASSES.length} random sums, ${sums} of each class, ${under}`);
    root.replaceChildren(make("table", { class: "pg-table" }, caption, make("thead", {}, head), make("tbody", {}, ...rows)));
  }

  return { EACH, classify, counts, answerEach, show };
})();
