// One sum in seven frames, each with one sentence and the numbers of this run.
const CarryStepper = (() => {
  const { make, percent, schoolbook, spoken, token, readings, where, SYMBOLS, PLACES } = CarryViews;
  const { answer, unembed } = CarryModel;

  const listed = (/** @type {(string | number)[]} */ items) => items.join(", ").replace(/, ([^,]*)$/, " and $1");

  /** @type {(positions: number[], values: (string | number)[]) => Record<number, string>} notes under positions */
  const under = (positions, values) => Object.fromEntries(values.map((value, i) => [positions[i], String(value)]));

  /** @type {(pass: Pass, layer: number, from: number[]) => Look[]} strong ones of these queries, the strongest first */
  function looks({ cache }, layer, from) {
    const { data } = cache[`blocks.${layer}.attn.pattern`];
    const [queryOf, headOf] = [10, 100].map((n) => (/** @type {number} */ i) => Math.floor(i / n));
    const all = Array.from(data, (p, i) => ({ head: headOf(i), query: queryOf(i) % 10, key: i % 10, p }));
    const strong = all.filter(({ query, key, p }) => p > 0.15 && query !== key && from.includes(query));
    return strong.sort((x, y) => y.p - x.p);
  }

  /** @type {((pass: Pass) => Frame)[]} */
  const FRAMES = [
    ({ run: { config }, sum: [a, b], tokens }) => {
      const usual = "the answer is read at the three = signs";
      const read = config.causal ? "each digit is predicted from those before it" : usual;
      const text = `${a} + ${b} goes in as ten tokens, three digits a number; ${read}.`;
      return { title: "Tokens", text, notes: { ...tokens.map((_, i) => String(i)) } };
    },
    (pass) => {
      const arcs = looks(pass, 0, [0, 1, 2, 3, 4, 5, 6]).filter(({ key }) => key < 7);
      const most = arcs.find(({ query, key }) => Math.abs(query - key) === 4);
      const none = "No digit gives the other digit of its column more than 15% of its attention here.";
      const text = most ? `A digit attends to the other digit of its column: ${strongest(pass, most, 0)}.` : none;
      return { title: "First layer: attention", text, arcs };
    },
    (pass) => {
      const [ones, tens] = [readings(pass, "ones"), readings(pass, "tens")];
      const ten = (/** @type {number} */ column) => 10 * (tens.find((probe) => probe.column === column)?.now || 0);
      const values = ones.map(({ now, column }) => now + ten(column));
      const { total } = schoolbook(pass.sum, pass.run.config.width);
      const probes = `Linear probes ${where(ones[0].name)}`;
      const text = `${probes} read the digit sums ${listed(values)}; they are ${listed(total)}.`;
      const positions = ones.map(({ position }) => position);
      const wrong = positions.filter((_, i) => values[i] !== total[i]);
      return { title: "Digit sums", text, notes: under(positions, values), wrong };
    },
    (pass) => {
      const { layers, answer: places } = pass.run.config;
      const arcs = looks(pass, layers - 1, places);
      const none = "No answer position gives a token more than 15% of its attention here.";
      const text = arcs.length ? `Answer positions attend to digits: ${strongest(pass, arcs[0], layers - 1)}.` : none;
      return { title: "Last layer: attention", text, arcs, notes: under(places, PLACES) };
    },
    (pass) => {
      const found = readings(pass, "carry_in");
      const places = pass.run.config.answer;
      const read = found.map(({ now, column }) => `${now ? "a carry-in" : "none"} for the ${PLACES[column]}`);
      const off = found.filter(({ now, truth }) => now !== truth);
      const due = off.map(({ truth, column }) => `${truth ? "one" : "none"} is due in the ${PLACES[column]}`);
      const verdict = due.length ? `but ${listed(due)}` : "which is correct";
      const text = `After the last attention, probes read ${listed(read)}, ${verdict}.`;
      const notes = under(places, found.map(({ now }) => `+${now}`));
      return { title: "Carry-in", text, notes, wrong: off.map(({ column }) => places[column]) };
    },
    ({ run, cache }) => {
      const { answer: places, layers, d_ff } = run.config;
      const block = `blocks.${layers - 1}`;
      const symbols = (/** @type {Tensor} */ logits) => answer(run, logits).digits.map((digit) => SYMBOLS[digit]);
      const [before, after] = [symbols(unembed(run, cache[`${block}.resid_mid`])), symbols(cache.logits)];
      const active = places.map((i) => CarryMaths.row(cache[`${block}.mlp.post`], i).filter((x) => x > 0).length);
      const read = `Read before the final MLP, the answer would be ${before.join("")}; after it, it is ${after.join("")}`;
      const text = `${read}. ${listed(active)} of its ${d_ff} neurons are active at the three positions.`;
      return { title: "Final MLP", text, notes: under(places, before.map((digit, i) => `${digit} → ${after[i]}`)) };
    },
    (pass) => {
      const { run, sum, cache } = pass;
      const { digits, probabilities } = answer(run, cache.logits);
      const sure = listed(probabilities.map((row, i) => percent(row[digits[i]])));
      const right = schoolbook(sum, run.config.width).digit;
      const wrong = run.config.answer.filter((_, i) => digits[i] !== right[i]);
      const notes = under(run.config.answer, digits.map((digit) => SYMBOLS[digit]));
      return { title: "Answer", text: `${spoken(pass)} The digits have probabilities of ${sure}.`, notes, wrong };
    },
  ]; // prettier-ignore

  /** @type {(pass: Pass, look: Look, layer: number) => string} */
  function strongest(pass, { head, query, key, p }, layer) {
    const by = `in head ${layer}:${head}, with ${percent(p)} of its attention`;
    return `most of all ${token(pass, query)} to ${token(pass, key)}, ${by}`;
  }

  function show(/** @type {HTMLElement} */ root, /** @type {Pass} */ pass, /** @type {number} */ frame) {
    const { title, text, arcs = [], notes = {}, wrong = [] } = FRAMES[frame - 1](pass);
    const x = (/** @type {number} */ i) => 30 + 60 * i;
    const svg = make("svg", { viewBox: "0 0 600 190", "aria-hidden": "true" });
    for (const { head, query, key, p } of arcs) {
      const [from, to] = [x(query), x(key)];
      const height = 108 - Math.min(96, 14 + Math.abs(from - to) * 0.22 + 5 * head);
      const d = `M${from} 108C${from} ${height} ${to} ${height} ${to} 108`;
      const line = { "stroke-width": 1 + 5 * p, "stroke-opacity": 0.25 + 0.7 * p };
      svg.append(make("path", { class: `pg-arc pg-head-${head}`, d, ...line }));
    }
    pass.tokens.forEach((token, i) => {
      const box = { x: x(i) - 20, y: 110, width: 40, height: 36, rx: 5 };
      svg.append(make("rect", { class: i in notes ? "pg-token pg-noted" : "pg-token", ...box }));
      svg.append(make("text", { class: "pg-token-text", x: x(i), y: 134 }, SYMBOLS[token]));
      svg.append(make("text", { class: wrong.includes(i) ? "pg-bad" : "", x: x(i), y: 170 }, notes[i] || ""));
    });
    const layer = frame === 2 ? 0 : pass.run.config.layers - 1;
    const heads = [...new Set(arcs.map(({ head }) => head))].sort();
    const key = heads.map((head) => make("span", { class: `pg-head-${head}` }, `head ${layer}:${head}`));
    const heading = make("p", {}, make("b", {}, `${frame} of 7 · ${title}`));
    const legend = make("p", { class: "pg-key" }, ...key);
    root.replaceChildren(heading, svg, legend, make("p", { class: "pg-sentence" }, text));
  }
  return { show };
})();
