// One sum in seven frames, each with one sentence and the numbers of this run.
"use strict";

const CarryStepper = (() => {
  const { make, percent, schoolbook, spoken, SYMBOLS, PLACES } = CarryViews;
  const { answer, digits, readProbe, unembed } = CarryModel;
  const TITLES = ["Tokens", "First layer: attention", "Column sums", "Last layer: attention", "Carry-in", "Final MLP", "Answer"];

  /** @param {string[]} items */
  const listed = (items) => (items.length > 1 ? `${items.slice(0, -1).join(", ")} and ${items[items.length - 1]}` : items[0] || "none");

  /** The strongest looks of a layer: from a query of `from`, by any head, to keys of `to`.
   * @param {Pass} pass @param {number} layer @param {number[]} from @param {number[]} to */
  function arcs({ cache }, layer, from, to) {
    const { data, shape: [heads, n] } = cache[`blocks.${layer}.attn.pattern`]; // prettier-ignore
    return Array.from({ length: heads }, (_, head) => from.flatMap((query) => to.map((key) => ({ head, query, key, p: data[(head * n + query) * n + key] }))))
      .flat()
      .filter(({ query, key, p }) => p > 0.15 && query !== key);
  }

  /** What a kind of probe reads at each column.
   * @param {Pass} pass @param {string} label */
  function read({ run, cache }, label) {
    return run.probes.map((probe, i) => ({ ...probe, i })).filter((probe) => probe.label === label).map((probe) => ({ ...probe, value: readProbe(run, probe.i, cache) })); // prettier-ignore
  }

  /** A frame: its sentence, arcs over the tokens, and notes under them.
   * @param {Pass} pass @param {number} frame @returns {{ text: string, arcs: any[], notes: Record<number, string>, wrong?: number[] }} */
  function describe(pass, frame) {
    const { run, sum, tokens, cache } = pass;
    const { config } = run;
    const last = config.layers - 1;
    const [a, b] = sum;
    const places = config.answer;
    const everywhere = tokens.map((_, i) => i);
    /** @type {(values: (string | number)[], from?: number[]) => Record<number, string>} */
    const under = (values, from = places) => Object.fromEntries(values.map((value, i) => [from[i], String(value)]));
    if (frame === 1) {
      const form = config.causal ? "the decoder is given the answer too, and predicts each digit from what stands before it" : "the answer will be read at the three = signs";
      return { text: `${a} + ${b} goes in as ten tokens, three digits a number; ${form}.`, arcs: [], notes: under(everywhere.map(String), everywhere) };
    }
    if (frame === 2) {
      const found = arcs(pass, 0, everywhere.slice(0, 7), everywhere.slice(0, 7));
      const partners = found.filter(({ query, key }) => Math.abs(query - key) === 4 && query !== 3 && key !== 3);
      const most = [...partners].sort((x, y) => y.p - x.p)[0];
      const text = most ? `A digit looks at its partner in the other number: most of all ${SYMBOLS[tokens[most.query]]} at ${SYMBOLS[tokens[most.key]]}, by head 0:${most.head}, with ${percent(most.p)} of its attention.` : "No digit gives its partner in the other number more than 15 % of its attention here.";
      return { text, arcs: found, notes: {} };
    }
    if (frame === 3) {
      const [ones, tens] = [read(pass, "ones"), read(pass, "tens")];
      const values = ones.map(({ value, column }) => value + 10 * ((tens.find((probe) => probe.column === column) || { value: 0 }).value));
      const truth = schoolbook(sum, config.width).total;
      return { text: `Linear probes of the stream after layer 0 read the column sums ${listed(values.map(String))}; they are ${listed(truth.map(String))}.`, arcs: [], notes: under(values, ones.map((probe) => probe.position)) };
    }
    if (frame === 4) {
      const found = arcs(pass, last, places, everywhere);
      const most = [...found].sort((x, y) => y.p - x.p)[0];
      const text = most ? `Answer positions look back: most of all the ${PLACES[places.indexOf(most.query)]} at token ${most.key}, ${SYMBOLS[tokens[most.key]]}, by head ${last}:${most.head}, with ${percent(most.p)} of its attention.` : "No answer position gives a token more than 15 % of its attention here.";
      return { text, arcs: found, notes: under(PLACES) };
    }
    if (frame === 5) {
      const found = read(pass, "carry_in");
      const truth = schoolbook(sum, config.width).carry_in;
      const said = found.map(({ value, column }) => `${value ? "a one" : "no one"} for the ${PLACES[column]}`);
      const all = found.every(({ value, column }) => value === truth[column]) ? "which is right" : `where ${listed(found.map(({ column }) => `${truth[column] ? "a one" : "none"} is due at the ${PLACES[column]}`))}`;
      return { text: `After the last attention probes read ${listed(said)}, ${all}.`, arcs: [], notes: under(found.map(({ value }) => (value ? "+1" : "+0"))) };
    }
    const right = digits(a + b, config.width);
    if (frame === 6) {
      const before = answer(run, unembed(run, cache[`blocks.${last}.resid_mid`])).digits.map((digit) => SYMBOLS[digit]).join("");
      const after = answer(run, cache.logits).digits.map((digit) => SYMBOLS[digit]).join("");
      const active = places.map((position) => CarryMaths.row(cache[`blocks.${last}.mlp.post`], position).filter((x) => x > 0).length);
      return { text: `Read before the final MLP the answer would be ${before}, after it it is ${after}; ${listed(active.map(String))} of its ${config.d_ff} neurons are active at the three positions.`, arcs: [], notes: under([...before].map((digit, i) => `${digit} → ${after[i]}`)) };
    }
    const { digits: found, probabilities } = answer(run, cache.logits);
    const sure = probabilities.map((row, i) => percent(row[found[i]]));
    return { text: `${spoken(pass)} The digits have probabilities of ${listed(sure)}.`, arcs: [], notes: under(found.map((digit) => SYMBOLS[digit])), wrong: places.filter((_, i) => found[i] !== right[i]) };
  }

  /** @param {HTMLElement} root @param {Pass} pass @param {number} frame */
  function show(root, pass, frame) {
    const { text, arcs: looks, notes, wrong = [] } = describe(pass, frame);
    const x = (/** @type {number} */ i) => 30 + 60 * i;
    const svg = make("svg", { viewBox: "0 0 600 190", "aria-hidden": "true" });
    for (const { head, query, key, p } of looks) {
      const [from, to] = [x(query), x(key)];
      const height = 108 - Math.min(96, 14 + Math.abs(from - to) * 0.22 + 5 * head);
      svg.append(make("path", { class: `pg-arc pg-head-${head}`, d: `M${from} 108C${from} ${height} ${to} ${height} ${to} 108`, "stroke-width": 1 + 5 * p, "stroke-opacity": 0.25 + 0.7 * p }));
    }
    pass.tokens.forEach((token, i) => {
      svg.append(make("rect", { class: i in notes ? "pg-token pg-noted" : "pg-token", x: x(i) - 20, y: 110, width: 40, height: 36, rx: 5 }), make("text", { class: "pg-token-text", x: x(i), y: 134 }, SYMBOLS[token]));
      if (i in notes) svg.append(make("text", { class: wrong.includes(i) ? "pg-note pg-bad" : "pg-note", x: x(i), y: 170 }, notes[i]));
    });
    const heads = new Set(looks.map(({ head }) => head));
    const key = heads.size ? make("p", { class: "pg-key" }, ...[...heads].map((head) => make("span", { class: `pg-head-${head}` }, `head ${frame === 2 ? 0 : pass.run.config.layers - 1}:${head}`))) : "";
    root.replaceChildren(make("p", { class: "pg-frame-title" }, make("b", {}, `${frame} of 7 · ${TITLES[frame - 1]}`)), svg, key, make("p", { class: "pg-sentence" }, text));
  }

  return { TITLES, describe, show };
})();
