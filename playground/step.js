// A step of the story as a live sum: one intervention on the run whose script comes last.
// An element of class pg-step says in data-how what is done: zero or mean to the decision head, or swap of the final MLP at
// the tens. A button undoes it.
const CarryStep = (() => {
  const { make, miss, missClass, misses, schoolbook, SYMBOLS } = CarryViews;
  const SUM = /** @type {Sum} */ ([352, 271]);
  const OTHER = /** @type {Sum} */ ([352, 279]); // the same sum, with a carry into the tens
  const steps = /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(".pg-step"));

  /** @type {(run: Run, how: string) => Intervention} */
  function intervention({ config, decision_head }, how) {
    const last = config.layers - 1;
    const tens = config.answer[1];
    if (how === "swap") return { kind: "Patch", mlps: [last], positions: [tens], source: OTHER };
    return { kind: how === "mean" ? "MeanAblation" : "Ablation", heads: [[last, decision_head]] };
  }

  /** @type {(run: Run, parts: Intervention[]) => number[]} the digits of the answer */
  function answer(run, parts) {
    const tokens = CarryModel.encode(run.config, ...SUM);
    const { logits } = CarryModel.forward(run, tokens, CarryModel.intervene(run, parts));
    return CarryModel.answer(run, logits).digits;
  }

  /** @summary Fill a step, and let its button do and undo. @param {Run} run @param {HTMLElement} step */
  function fill(run, step) {
    const part = intervention(run, step.dataset.how ?? "");
    const { digit } = schoolbook(SUM, run.config.width);
    const output = make("output");
    const sentence = make("span", { role: "status" });
    const button = make("button", { type: "button" }, step.dataset.label ?? "");
    let done = true;
    const draw = () => {
      const digits = answer(run, done ? [part] : []);
      output.replaceChildren(...digits.map((x, i) => make("span", { class: missClass(miss(x, digit[i])) }, SYMBOLS[x])));
      sentence.textContent = misses(SUM, run.config.width, digits).join(" ") || "Correct.";
      button.setAttribute("aria-pressed", String(done));
    };
    button.addEventListener("click", () => {
      done = !done;
      draw();
    });
    const more = `../book/playground.html${CarryState.format({ run: run.id, sum: SUM, do: [part] })}`;
    step.replaceChildren(
      make("p", { class: "pg-live-sum" }, `${SUM.join(" + ")} = `, output),
      make("p", { class: "pg-row" }, button, sentence, make("a", { href: more }, "Every part of this model")),
    );
    draw();
  }

  async function receive(/** @type {Packed} */ packed) {
    const run = /** @type {any} */ (await CarryMaths.unpack(packed));
    for (const step of steps) fill(run, step);
    document.body.dataset.steps = String(steps.length); // for tests
  }

  Object.assign(globalThis, { CarryRuns: { receive } }); // the run's script calls it
})();
