// What the address holds (#run=n2_s0.3_w0.2/2&sum=345+278&do={"kind":"Ablation","heads":[[1,0]]}), in one table of
// properties. `do` is JSON that carry_core's Ablation.from_json reads; so do MeanAblation's and Patch's.
"use strict";

const CarryState = (() => {
  /** An error whose message is a line for the reader, beside a field. */
  class Unclear extends Error {}

  const HOW = ["kind", "positions", "source"]; // the other fields name parts
  const EXAMPLE = 'expected one such as {"kind":"Ablation","heads":[[1,0]]}';

  /** The two numbers of a sum.
   * @param {string} text @returns {Sum} */
  function parseSum(text) {
    const match = /^\s*(\d{1,9})\s*\+\s*(\d{1,9})\s*$/.exec(text);
    if (!match) throw new Unclear(`“${text}” is not a sum: expected two whole numbers, such as 345 + 278.`);
    const [a, b] = [Number(match[1]), Number(match[2])];
    const total = `${a} + ${b} is ${a + b}, but the model answers with three digits`;
    if (Math.max(a, b) > 999) throw new Unclear(`${Math.max(a, b)} has more than three digits: choose up to 999.`);
    if (a + b > 999) throw new Unclear(`${total}: choose a sum up to 999.`);
    return [a, b];
  }

  /** A whole number from `low` to `high`.
   * @param {string} text @param {string} what @param {number} low @param {number} high */
  function parseNumber(text, what, low, high) {
    const value = /^\d{1,6}$/.test(text) ? Number(text) : NaN;
    if (value >= low && value <= high) return value;
    throw new Unclear(`“${text}” is no ${what}: expected a number from ${low} to ${high}.`);
  }

  /** Whether a value of each field fits a run, in the order of to_json.
   * @param {Config} config @returns {Record<string, (x: any) => boolean>} */
  function fields({ layers, heads, d_ff, width }) {
    const below = (/** @type {any} */ x, /** @type {number} */ end) => Number.isInteger(x) && x >= 0 && x < end;
    const layer = (/** @type {any} */ x) => below(x, layers);
    const pair = (/** @type {any} */ x, /** @type {number} */ end) => x.length === 2 && layer(x[0]) && below(x[1], end);
    return {
      heads: (x) => pair(x, heads),
      mlps: layer,
      neurons: (x) => pair(x, d_ff),
      skips: layer,
      patterns: (x) => pair(x, heads),
      resid: layer,
      names: (x) => /^blocks\.\d\.mlp\.skip$/.test(x) && layer(Number(x[7])),
      positions: (x) => below(x, 3 * width + 1),
      source: (x) => below(x, 1000),
    };
  }

  /** Interventions that a run can have, from one or a list.
   * @param {string} text @param {Config} config @returns {Intervention[]} */
  function parseIntervention(text, config) {
    const nonsense = new Unclear(`“${text}” is no intervention: ${EXAMPLE}.`);
    /** @type {any} */
    let read;
    try {
      read = JSON.parse(text);
    } catch {
      throw nonsense;
    }
    const fits = fields(config);
    const parts = [read].flat().map((part) => {
      if (part !== Object(part) || Array.isArray(part)) throw nonsense;
      const { kind = "Ablation", ...named } = part;
      if (!["Ablation", "MeanAblation", "Patch"].includes(kind)) {
        throw new Unclear(`“${kind}” is no kind of intervention: ${EXAMPLE}.`);
      }
      for (const [field, values] of Object.entries(named)) {
        const possible = Object.hasOwn(fits, field) && !(kind === "MeanAblation" && field === "patterns");
        const some = Array.isArray(values) && values.length && values.every((x) => x !== null);
        if (!possible || !some || !values.every(fits[field])) {
          throw new Unclear(`This run has no ${field}=${JSON.stringify(values)} to switch: ${EXAMPLE}.`);
        }
      }
      if ((kind === "Patch") !== "source" in named) throw new Unclear("A Patch, and nothing else, has a source.");
      if (named.source) parseSum(named.source.join("+"));
      return { kind, ...named };
    });
    return tidy(parts);
  }

  /** Without empty fields and in the order of to_json; what does nothing is left out.
   * @param {any[]} parts @returns {Intervention[]} */
  function tidy(parts) {
    const order = ["kind", ...Object.keys(fields(/** @type {any} */ ({})))];
    const written = (/** @type {any} */ part) => order.filter((field) => part[field] && part[field].length);
    const kept = parts.map((part) => written(part).map((field) => [field, part[field]]));
    return kept.filter((part) => part.some(([field]) => !HOW.includes(field))).map((part) => Object.fromEntries(part));
  }

  /** How each property is read, and written.
   * @type {{ [key in keyof State]: [(text: string, bounds: Bounds) => State[key], (x: any) => string] }} */
  const PROPERTIES = {
    run: [
      (text, { runs }) => {
        if (runs.includes(text)) return text;
        throw new Unclear(`“${text}” is no run of this page: expected one such as ${runs[0]}.`);
      },
      String,
    ],
    sum: [parseSum, (sum) => sum.join("+")],
    do: [
      (text, { config }) => parseIntervention(text, config),
      (parts) => (parts.length ? JSON.stringify(parts.length > 1 ? parts : parts[0]) : ""),
    ],
    frame: [(text) => parseNumber(text, "frame", 1, 7), (frame) => (frame > 1 ? String(frame) : "")],
    epoch: [(text, { epochs }) => parseNumber(text, "epoch", 1, epochs), String],
  };

  /** A state with what an address says put in, and a line for each thing in it that is not understood.
   * @param {string} hash @param {Partial<State>} initial @param {Partial<Bounds>} bounds */
  function parse(hash, initial, bounds) {
    const state = { ...initial };
    /** @type {Problem[]} */
    const problems = [];
    for (const [key, text] of new URLSearchParams(hash.replace(/^#/, "").replace(/\+/g, "%2B"))) {
      try {
        const expected = Object.keys(initial).join(", ");
        if (!Object.hasOwn(initial, key)) throw new Unclear(`The address has “${key}”: expected ${expected}.`);
        const name = /** @type {keyof State} */ (key);
        Object.assign(state, { [name]: PROPERTIES[name][0](text, /** @type {Bounds} */ (bounds)) });
      } catch (error) {
        if (!(error instanceof Unclear)) throw error;
        problems.push({ field: key, text: error.message });
      }
    }
    return { state: /** @type {State} */ (state), problems };
  }

  /** The address of a state, with its #.
   * @param {Partial<State>} state */
  function format(state) {
    const written = Object.entries(state).map(([key, value]) => {
      const text = encodeURIComponent(PROPERTIES[/** @type {"do"} */ (key)][1](value));
      return text && `${key}=${text.replace(/%(2B|2C|2F|3A)/g, decodeURIComponent)}`;
    });
    return `#${written.filter(Boolean).join("&")}`;
  }

  /** Interventions as Python writes them: Ablation(mlps={1}) | Patch(heads={(1, 0)}, source=(274, 358)).
   * @param {Intervention[]} parts */
  function call(parts) {
    /** @type {(x: any) => string} */
    const item = (x) => (Array.isArray(x) ? `(${x.join(", ")})` : JSON.stringify(x));
    const calls = parts.map(({ kind, ...named }) => {
      const written = Object.entries(named).map(([field, values]) => {
        const list = values.map(item).join(", ");
        return HOW.includes(field) ? `${field}=(${list}${values.length > 1 ? "" : ","})` : `${field}={${list}}`;
      });
      return `${kind}(${written.join(", ")})`;
    });
    return calls.join(" | ") || "Ablation()";
  }

  /** Python that does what the page shows.
   * @param {State} state */
  function python({ run, sum: [a, b], do: parts }) {
    const [group, number] = run.split("/");
    const kinds = new Set(parts.length ? parts.map(({ kind }) => kind) : ["Ablation"]);
    return `import torch
from carry_core import ${[...kinds, "encode", "load"].join(", ")}

model = load("${group}").model(${number})
tokens = encode(torch.tensor([${a}]), torch.tensor([${b}]), model.config.layout)
intervention = ${call(parts)}
logits = model(tokens, intervention.hook(model))
print(logits[0, list(model.config.layout.answer)].argmax(-1).tolist())
`;
  }

  return { Unclear, HOW, parseSum, parseIntervention, tidy, parse, format, call, python };
})();
