// What the address holds (#run=n2_s0.3_w0.2/2&sum=352+271&do={"kind":"Ablation","heads":[[1,0]]}), in one table of
// properties. carry_paper/pages/playground.py says what each is, and writes addresses too. `do` is JSON that
// carry_core's Ablation.from_json reads; so do MeanAblation's and Patch's.
const CarryState = (() => {
  class Unclear extends Error {} // its message is a line for the reader, beside a field
  const KINDS = ["Ablation", "MeanAblation", "Patch"];
  const HOW = ["kind", "positions", "source"]; // the other fields name parts
  const PLACES = ["hundreds", "tens", "units"]; // columns, from the left
  const RANGE = { low: -0.5, high: 1.5 }; // of a held coordinate
  const EXAMPLE = 'expected one such as {"kind":"Ablation","heads":[[1,0]]}';

  /** @summary Text from the address between quotation marks, cut short. @param {string} text */
  const quote = (text) => `“${text.length > 60 ? `${text.slice(0, 60)}…` : text}”`;

  /** @param {string} text @returns {Sum} */
  function parseSum(text) {
    const match = /^\s*(\d{1,9})\s*\+\s*(\d{1,9})\s*$/.exec(text);
    if (!match) throw new Unclear(`${quote(text)} is not a sum: expected two whole numbers, such as 352 + 271.`);
    const [a, b] = [Number(match[1]), Number(match[2])];
    if (Math.max(a, b) > 999) throw new Unclear(`${Math.max(a, b)} has more than three digits: choose up to 999.`);
    if (a + b < 1000) return [a, b];
    throw new Unclear(`${a} + ${b} is ${a + b}, but the model answers with three digits: choose a sum up to 999.`);
  }

  /** @param {string} text @param {string} what @param {number} high the last that there is, from 1 on */
  function parseNumber(text, what, high) {
    if (/^\d{1,6}$/.test(text) && Number(text) >= 1 && Number(text) <= high) return Number(text);
    throw new Unclear(`${quote(text)} is not ${what}: expected a number from 1 to ${high}.`);
  }

  function parseRun(/** @type {string} */ text, /** @type {string[]} */ runs) {
    if (runs.includes(text)) return text;
    throw new Unclear(`${quote(text)} is not a run of this page: expected one such as ${runs[0]}.`);
  }

  /** @type {(text: string, lines: Line[]) => Coordinates} such as hundreds:0.2,tens-nine:1 */
  function parseCoordinates(text, lines) {
    const { low, high } = RANGE;
    const example = `expected one such as hundreds:0.2, from ${low} to ${high}`;
    if (!lines.length) throw new Unclear("No line was measured in models of one layer, so no carry can be held.");
    const held = text.split(",").map((part) => {
      const match = /^([a-z-]+):(-?\d(?:\.\d{1,3})?)$/.exec(part);
      const [name, value] = match ? [match[1], Number(match[2])] : ["", NaN];
      if (!lines.some(({ id }) => id === name) || !(value >= low && value <= high)) {
        throw new Unclear(`${quote(part)} holds no carry at a coordinate: ${example}.`);
      }
      return [name, value];
    });
    return Object.fromEntries(held);
  }

  /** @summary As in the address. @param {Coordinates} held */
  const writeCoordinates = (held) =>
    Object.entries(held).map(([id, value]) => `${id}:${Number(value.toFixed(3))}`).join();

  /** @type {(config: Config) => Map<string, (x: any) => boolean>} whether values fit, in the order of to_json */
  function fields({ layers, heads, d_ff, width }) {
    const below = (/** @type {number} */ end) => (/** @type {any} */ x) => Number.isInteger(x) && x >= 0 && x < end;
    const layer = below(layers);
    const pair = (/** @type {number} */ end) => (/** @type {any} */ x) =>
      Array.isArray(x) && x.length === 2 && layer(x[0]) && below(end)(x[1]);
    const name = (/** @type {any} */ x) =>
      typeof x === "string" && /^blocks\.\d\.mlp\.skip$/.test(x) && layer(Number(x[7]));
    return new Map([
      ["heads", pair(heads)],
      ["mlps", layer],
      ["neurons", pair(d_ff)],
      ["skips", layer],
      ["patterns", pair(heads)],
      ["resid", layer],
      ["names", name],
      ["positions", below(3 * width + 1)],
      ["source", below(1000)],
    ]);
  }

  /** @param {string} text of JSON; what is none is null */
  function readJSON(text) {
    try {
      return JSON.parse(text);
    } catch {
      return null;
    }
  }

  /** @type {(text: string, config: Config) => Intervention[]} those that a run can have, from one or a list */
  function parseIntervention(text, config) {
    const fits = fields(config);
    const parts = [readJSON(text)].flat().map((part) => {
      if (part?.constructor !== Object) throw new Unclear(`${quote(text)} is not an intervention: ${EXAMPLE}.`);
      const { kind = "Ablation", ...named } = part;
      if (!KINDS.includes(kind)) {
        const what = quote(typeof kind === "string" ? kind : text);
        throw new Unclear(`${what} is not a kind of intervention: ${EXAMPLE}.`);
      }
      for (const [field, values] of Object.entries(named)) {
        const fit = kind === "MeanAblation" && field === "patterns" ? undefined : fits.get(field);
        if (!fit || !Array.isArray(values) || !values.length || !values.every(fit)) {
          const what = fits.has(field) ? `${field} to switch as` : "part";
          throw new Unclear(`This run has no ${what} in ${quote(text)}: ${EXAMPLE}.`);
        }
      }
      if ((kind === "Patch") !== "source" in named) throw new Unclear("A Patch, and nothing else, has a source.");
      if (named.source) parseSum(named.source.join("+"));
      return { kind, ...named };
    });
    return tidy(parts);
  }

  /** @type {(parts: any[]) => Intervention[]} in the order of to_json, without what is empty or does nothing */
  function tidy(parts) {
    const order = ["kind", ...fields(/** @type {any} */ ({})).keys()];
    const kept = parts.map((part) => order.filter((field) => part[field]?.length).map((field) => [field, part[field]]));
    return kept.filter((part) => part.some(([field]) => !HOW.includes(field))).map((part) => Object.fromEntries(part));
  }

  /** @type {Counterpart} the same parts of another run: its decision head for this run's, its last layer for the last */
  function counterpart(parts, from, to) {
    const [last, their_last] = [from, to].map(({ config }) => config.layers - 1);
    const layer = (/** @type {number} */ i) => (i === last ? [their_last] : i < their_last ? [i] : []);
    const swap = new Map([
      [from.decision_head, to.decision_head],
      [to.decision_head, from.decision_head],
    ]);
    const head = (/** @type {number[]} */ [i, h]) => layer(i).map((j) => [j, i === last ? (swap.get(h) ?? h) : h]);
    const name = (/** @type {string} */ text) => layer(Number(text[7])).map((j) => `blocks.${j}.mlp.skip`);
    const none = () => []; // a neuron's number means nothing in another run
    const match = { heads: head, patterns: head, mlps: layer, skips: layer, resid: layer, names: name, neurons: none };
    const matched = (/** @type {any} */ part) =>
      Object.entries(match).map(([field, of]) => [field, (part[field] || []).flatMap(of)]);
    return tidy(parts.map((part) => ({ ...part, ...Object.fromEntries(matched(part)) })));
  }

  const writeIntervention = (/** @type {Intervention[]} */ parts) =>
    parts.length ? JSON.stringify(parts.length > 1 ? parts : parts[0]) : "";
  /** @type {Properties} how each is read, and written */
  const PROPERTIES = {
    run: [(text, { runs }) => parseRun(text, runs), String],
    sum: [parseSum, (sum) => sum.join("+")],
    beside: [(text, { runs }) => parseRun(text, runs), String],
    do: [(text, { config }) => parseIntervention(text, config), writeIntervention],
    line: [(text, { lines }) => parseCoordinates(text, lines), writeCoordinates],
    frame: [(text) => parseNumber(text, "a frame", 7), (frame) => (frame > 1 ? String(frame) : "")],
    epoch: [(text, { epochs }) => parseNumber(text, "an epoch", epochs), String],
  };

  /** @type {Parse} a state with what an address says put in, and a line for each thing that is not understood */
  function parse(hash, initial, bounds) {
    const state = /** @type {State} */ ({ ...initial });
    const problems = /** @type {Problem[]} */ ([]);
    for (const [key, text] of new URLSearchParams(hash.replace(/^#/, "").replace(/\+/g, "%2B"))) {
      try {
        const expected = Object.keys(initial).join(", ");
        const what = key ? quote(key) : "a value without a name";
        if (!Object.hasOwn(initial, key)) throw new Unclear(`The address has ${what}: expected ${expected}.`);
        const [read] = PROPERTIES[/** @type {keyof State} */ (key)];
        Object.assign(state, { [key]: read(text, /** @type {Bounds} */ (bounds)) });
      } catch (error) {
        if (!(error instanceof Unclear)) throw error;
        problems.push({ field: key, text: error.message });
      }
    }
    return { state, problems };
  }

  /** @summary The address of a state, with its #. @param {Partial<State>} state */
  function format(state) {
    const written = Object.entries(state).map(([key, value]) => {
      const text = encodeURIComponent(PROPERTIES[/** @type {"do"} */ (key)][1](value));
      return text && `${key}=${text.replace(/%(2B|2C|2F|3A)/g, decodeURIComponent)}`;
    });
    return `#${written.filter(Boolean).join("&")}`;
  }

  /** @param {Intervention[]} parts as Python writes them: Ablation(mlps={1}) | Patch(heads={(1, 0)}, source=(4, 5)) */
  function call(parts) {
    const item = (/** @type {any} */ x) => (Array.isArray(x) ? `(${x.join(", ")})` : JSON.stringify(x));
    const calls = parts.map(({ kind, ...named }) => {
      const written = Object.entries(named).map(([field, values]) => {
        const list = values.map(item).join(", ");
        return HOW.includes(field) ? `${field}=(${list}${values.length > 1 ? "" : ","})` : `${field}={${list}}`;
      });
      return `${kind}(${written.join(", ")})`;
    });
    return calls.join(" | ") || "Ablation()";
  }

  /** @summary Python that does what the page shows. @param {State} state */
  function python({ run, sum: [a, b], do: parts, line }) {
    const [group, number] = run.split("/");
    const kinds = new Set(parts.length ? parts.map(({ kind }) => kind) : ["Ablation"]);
    const held = Object.entries(line).map(([id, value]) => `"${id}": ${value}`);
    const imported = held.length ? "from carry_paper.pages.playground import coordinate_hook\n" : "";
    const hold = `hold = coordinate_hook(model, {${held.join(", ")}})\n`;
    const both = `${hold}logits = model(tokens, lambda name, x: hold(name, hook(name, x)))`;
    return `import torch
from carry_core import ${[...kinds, "encode", "load"].join(", ")}
${imported}
model = load("${group}").model(${number})
tokens = encode(torch.tensor([${a}]), torch.tensor([${b}]), model.config.layout)
intervention = ${call(parts)}
hook = intervention.hook(model)
${held.length ? both : "logits = model(tokens, hook)"}
print(logits[0, list(model.config.layout.answer)].argmax(-1).tolist())
`;
  }
  return { Unclear, HOW, PLACES, RANGE, parseSum, parseIntervention, tidy, counterpart, parse, format, call, python };
})();
