// What the address holds (#run=n2_s0.3_w0.2/2&sum=345+278&do={"kind":"Ablation","heads":[[1,0]]}), in one table of
// properties. `do` is JSON that carry_core's Ablation.from_json, MeanAblation.from_json or Patch.from_json reads.
"use strict";

/**
 * @typedef {{ run: string, sum: [number, number], do: Intervention | null, frame: number }} State
 * @typedef {{ id: string, file: string, label: string, group: string, run: number, training: string }} Listed
 */

const CarryState = (() => {
  /** An error whose message is a line for the reader. */
  class Unclear extends Error {}

  /** @type {Record<string, string>} */
  const FIELDS = {
    heads: "pairs", neurons: "pairs", patterns: "pairs", mlps: "layers", skips: "layers", resid: "layers", names: "names", positions: "positions", source: "sum",
  }; // prettier-ignore

  /** The two numbers of a sum.
   * @param {string} text @returns {[number, number]} */
  function parseSum(text) {
    const match = /^\s*(\d{1,9})\s*\+\s*(\d{1,9})\s*$/.exec(text);
    if (!match) throw new Unclear(`“${text}” is not a sum: expected two whole numbers, such as 345 + 278.`);
    const [a, b] = [Number(match[1]), Number(match[2])];
    if (a > 999 || b > 999) throw new Unclear(`${Math.max(a, b)} has more than three digits: choose numbers up to 999.`);
    if (a + b > 999) throw new Unclear(`${a} + ${b} is ${a + b}, but the model answers with three digits: choose a sum up to 999.`);
    return [a, b];
  }

  /** An intervention that this run can have.
   * @param {string} text @param {Config} config @returns {Intervention | null} */
  function parseIntervention(text, config) {
    const expected = 'expected one such as {"kind":"Ablation","heads":[[1,0]]}';
    /** @type {any} */
    let found;
    try {
      found = JSON.parse(text);
    } catch {
      throw new Unclear(`“${text}” is no intervention: ${expected}.`);
    }
    const { kind = "Ablation", ...parts } = Object(found);
    if (!["Ablation", "MeanAblation", "Patch"].includes(kind)) throw new Unclear(`“${kind}” is no kind of intervention: ${expected}.`);
    if (Array.isArray(found) || found !== Object(found)) throw new Unclear(`“${text}” is no intervention: ${expected}.`);
    /** @type {(x: any, below: number) => boolean} */
    const whole = (x, below) => Number.isInteger(x) && x >= 0 && x < below;
    /** @type {Record<string, (x: any, field: string) => boolean>} */
    const fits = {
      pairs: (x, field) => Array.isArray(x) && x.length === 2 && whole(x[0], config.layers) && whole(x[1], field === "neurons" ? config.d_ff : config.heads),
      layers: (x) => whole(x, config.layers),
      names: (x) => typeof x === "string" && new RegExp(`^blocks\\.[0-${config.layers - 1}]\\.mlp\\.skip$`).test(x),
      positions: (x) => whole(x, 3 * config.width + 1),
      sum: (x) => whole(x, 1000),
    };
    for (const [field, values] of Object.entries(parts)) {
      const check = Object.hasOwn(FIELDS, field) && fits[FIELDS[field]];
      const ok = check && Array.isArray(values) && values.every((value) => check(value, field));
      if (!ok || (kind === "MeanAblation" && field === "patterns")) throw new Unclear(`This run has no ${field}=${JSON.stringify(values)} to switch: ${expected}.`);
    }
    if (kind === "Patch") parseSum((parts.source || []).join("+"));
    else if (parts.source) throw new Unclear("Only a Patch has a source.");
    return tidy({ kind, ...parts });
  }

  /** Without empty fields and in the order of to_json; null if nothing is left to do.
   * @param {Intervention} part @returns {Intervention | null} */
  function tidy(part) {
    const kept = Object.keys(FIELDS)
      .map((field) => /** @type {[string, any[]]} */ ([field, part[/** @type {"heads"} */ (field)] || []]))
      .filter(([, values]) => values.length);
    const acts = kept.some(([field]) => !["positions", "source"].includes(field));
    return acts ? /** @type {Intervention} */ ({ kind: part.kind, ...Object.fromEntries(kept) }) : null;
  }

  /** @type {{ [key in keyof State]: { initial: State[key], parse: (text: string, known: Listed[], config: (run: string) => Config) => State[key], format: (value: any) => string } }} */
  const PROPERTIES = {
    run: {
      initial: "n2_s0.3_w0.2/0",
      parse(text, known) {
        if (!known.some(({ id }) => id === text)) throw new Unclear(`“${text}” is no run of this page: expected one such as ${known[0].id}.`);
        return text;
      },
      format: (run) => run,
    },
    sum: { initial: [345, 278], parse: (text) => parseSum(text), format: ([a, b]) => `${a}+${b}` },
    do: { initial: null, parse: (text, known, config) => parseIntervention(text, config("")), format: (part) => JSON.stringify(part) },
    frame: {
      initial: 1,
      parse(text) {
        if (!/^[1-7]$/.test(text)) throw new Unclear(`“${text}” is no frame: expected a number from 1 to 7.`);
        return Number(text);
      },
      format: String,
    },
  };

  /** The state of an address, and a line for each thing in it that is not understood.
   * @param {string} hash @param {Listed[]} known @param {(run: string) => Config} config */
  function parse(hash, known, config) {
    /** @type {any} */
    const state = Object.fromEntries(Object.entries(PROPERTIES).map(([key, { initial }]) => [key, initial]));
    /** @type {string[]} */
    const problems = [];
    for (const [key, text] of new URLSearchParams(hash.replace(/^#/, "").replace(/\+/g, "%2B"))) {
      try {
        if (!Object.hasOwn(PROPERTIES, key)) throw new Unclear(`The address has “${key}”: expected ${Object.keys(PROPERTIES).join(", ")}.`);
        state[key] = PROPERTIES[/** @type {keyof State} */ (key)].parse(text, known, () => config(state.run));
      } catch (error) {
        if (!(error instanceof Unclear)) throw error;
        problems.push(error.message);
      }
    }
    return { state: /** @type {State} */ (state), problems };
  }

  /** The address of a state, with its #: run and sum always, so that a link holds when what the page begins with changes.
   * @param {State} state */
  function format(state) {
    const parts = Object.entries(PROPERTIES).map(([key, { format }]) => {
      const value = state[/** @type {keyof State} */ (key)];
      if (value === null || (key === "frame" && value === 1)) return "";
      return `${key}=${encodeURIComponent(format(value)).replace(/%(2B|2C|2F|3A)/g, decodeURIComponent)}`;
    });
    return `#${parts.filter(Boolean).join("&")}`;
  }

  /** An intervention as Python writes it: Patch(heads={(1, 0)}, source=(274, 358)).
   * @param {Intervention} part */
  function call({ kind, ...fields }) {
    /** @type {(x: any) => string} */
    const item = (x) => (Array.isArray(x) ? `(${x.join(", ")})` : JSON.stringify(x));
    const written = Object.entries(fields).map(([field, values]) => {
      const list = /** @type {any[]} */ (values).map(item).join(", ");
      return ["positions", "source"].includes(field) ? `${field}=(${list}${values.length === 1 ? "," : ""})` : `${field}={${list}}`;
    });
    return `${kind}(${written.join(", ")})`;
  }

  /** Python that does what the page shows.
   * @param {State} state */
  function python({ run, sum: [a, b], do: part }) {
    const [group, number] = run.split("/");
    return [
      "import torch",
      `from carry_core import ${part ? `${part.kind}, ` : ""}encode, load`,
      "",
      `model = load("${group}").model(${number})`,
      `tokens = encode(torch.tensor([${a}]), torch.tensor([${b}]), model.config.layout)`,
      ...(part ? [`intervention = ${call(part)}`, "logits = model(tokens, intervention.hook(model))"] : ["logits = model(tokens)"]),
      "print(logits[0, list(model.config.layout.answer)].argmax(-1).tolist())",
      "",
    ].join("\n");
  }

  return { Unclear, parseSum, parseIntervention, tidy, parse, format, call, python };
})();
