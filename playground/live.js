// The sum on the front page, with a switch for each part of the last layer. The script of the run that it shows comes next.
const CarryLive = (() => {
  const { $, make, miss, missClass, misses, schoolbook, table, SYMBOLS, PLACES } = CarryViews;
  let sum = /** @type {Sum} */ ([352, 271]);
  let run = /** @type {any} */ (null); // a Run, once it is unpacked
  const switches = /** @type {Map<Switch, any>} */ (new Map()); // each part's button
  const off = /** @type {Set<Switch>} */ (new Set());

  /** @summary The last layer's parts, the decision head first. @param {Run} run @returns {Switch[]} */
  function parts({ config, decision_head }) {
    const layer = config.layers - 1;
    const others = [...Array(config.heads).keys()].filter((head) => head !== decision_head);
    const head = (/** @type {string} */ name, /** @type {number} */ i) =>
      /** @type {Switch} */ ({ label: `${name}, ${layer}:${i}`, field: "heads", value: [layer, i] });
    return [
      head("decision head", decision_head),
      ...others.map((i) => head("other head", i)),
      { label: "final MLP", field: "mlps", value: layer },
    ];
  }

  /** What is switched off, as one ablation. */
  function intervention() {
    const values = (/** @type {string} */ field) => [...off].filter((x) => x.field === field).map(({ value }) => value);
    return CarryState.tidy([{ kind: "Ablation", heads: values("heads").sort(), mlps: values("mlps") }]);
  }

  /** @summary What the model's digits show. @param {number[]} digits */
  function explain(digits) {
    const sentences = misses(sum, run.config.width, digits);
    if (sentences.length) return sentences.join(" ");
    return off.size ? "Correct: this sum does not need what is off." : "Correct. Which digit depends on which part?";
  }

  function draw() {
    const { config } = run;
    const tokens = CarryModel.encode(config, ...sum);
    const { logits } = CarryModel.forward(run, tokens, CarryModel.intervene(run, intervention()));
    const { digits } = CarryModel.answer(run, logits);
    const { total, carry_in, digit } = schoolbook(sum, config.width);
    const shown = digits.map((found, i) => {
      return make("span", { class: missClass(miss(found, digit[i])) }, SYMBOLS[found]);
    });
    const columns = CarryModel.digits(sum[0], config.width).map((x, i) => [x, total[i] - x]);
    $("sum").textContent = `${sum.join(" + ")} =`;
    $("answer").replaceChildren(...shown);
    $("correct").textContent = `(correct: ${digit.join("")})`;
    $("spoken").textContent = explain(digits);
    const rows = [
      ["the sum", ...columns.map((column) => column.join(" + ")), `input, ${tokens.map((i) => SYMBOLS[i]).join("")}`],
      ["digit sum", ...total.map(String), "first layer"],
      ["carry-in", ...carry_in.map((x) => (x ? "yes" : "no")), "second layer, attention"],
      ["correct answer", ...digit.map(String), "final MLP"],
    ];
    const caption = `${sum.join(" + ")}, by the column method, and where the paper finds each step`;
    $("steps").replaceChildren(table(caption, ["", ...PLACES, "where"], rows));
    for (const [part, button] of switches) button.setAttribute("aria-pressed", String(off.has(part)));
    $("more").href = `playground.html${CarryState.format({ run: run.id, sum, do: intervention() })}`;
  }

  function another() {
    const total = 100 + Math.floor(900 * Math.random());
    const a = Math.floor((total + 1) * Math.random());
    sum = [a, total - a];
    draw();
  }

  function toggle(/** @type {Switch} */ part) {
    if (!off.delete(part)) off.add(part);
    draw();
  }

  /** @summary Begin with the decision head off. @param {Packed} packed what the run's script has */
  async function receive(packed) {
    run = await CarryMaths.unpack(packed);
    for (const part of parts(run)) {
      switches.set(part, make("button", { type: "button", onclick: () => toggle(part) }, part.label));
    }
    off.add([...switches.keys()][0]);
    $("parts").append(...switches.values());
    $("random").addEventListener("click", another);
    draw();
    $("live").dataset.seconds = (performance.now() / 1000).toFixed(2);
    $("live").classList.remove("pg-waiting");
  }

  const fail = (text = "The weights cannot be loaded: build the book again with make book.") =>
    ($("spoken").textContent = text);
  const ready = (/** @type {Packed} */ packed) => receive(packed).catch(({ message }) => fail(message));
  Object.assign(globalThis, { CarryRuns: { receive: ready } }); // the run's script calls it
  $("live").hidden = false;
  return { fail };
})();
