// The transformer of carry_core/model.py with its hook points, the interventions of carry_core/interventions.py, the
// sums of carry_core/sums.py. Each has the name that it has there.
"use strict";

const CarryModel = (() => {
  const { zeros, linear, layerNorm, rotate, softmax, scores, gather, add, relu } = CarryMaths;
  const [PLUS, EQUALS] = [10, 11];

  /** Decimal digits, most significant first.
   * @param {number} number @param {number} width */
  const digits = (number, width) => [...String(number).padStart(width, "0")].map(Number);

  /** Input tokens of a + b; a decoder's hold the answer too.
   * @param {Config} config @param {number} a @param {number} b */
  function encode({ width, causal }, a, b) {
    const tail = causal ? digits(a + b, width) : Array(width).fill(EQUALS);
    return [...digits(a, width), PLUS, ...digits(b, width), ...tail];
  }

  /**
   * All activations by name, `logits` among them, when the hook does to each what it will.
   * @param {Run} run @param {number[]} tokens @param {Hook} [hook] @returns {Activations}
   */
  function forward({ config, weights }, tokens, hook = (_, x) => x) {
    /** @type {Activations} */
    const cache = {};
    /** @type {Hook} */
    const point = (name, x) => (cache[name] = hook(name, x));
    /** @type {(name: string, x: Tensor) => Tensor} */
    const project = (name, x) => linear(x, weights[`${name}.weight`], weights[`${name}.bias`]);
    /** @type {(name: string, x: Tensor) => Tensor} */
    const norm = (name, x) => layerNorm(x, weights[`${name}.weight`], weights[`${name}.bias`]);
    const byHead = [tokens.length, config.heads, config.d_model / config.heads];

    const embedding = zeros(tokens.length, config.d_model);
    tokens.forEach((token, position) => {
      const scaled = CarryMaths.row(weights["embed.weight"], token).map((x) => x * Math.sqrt(config.d_model));
      embedding.data.set(scaled, position * config.d_model);
    });
    let resid = point("embed", embedding);
    for (let l = 0; l < config.layers; l++) {
      const block = `blocks.${l}`;
      resid = point(`${block}.resid_pre`, resid);
      const x = norm(`${block}.norm`, resid);
      const [q, k, v] = ["q", "k", "v"].map((name) =>
        rotate(point(`${block}.attn.${name}`, { data: project(`${block}.${name}`, x).data, shape: byHead })),
      );
      const pattern = point(
        `${block}.attn.pattern`,
        softmax(point(`${block}.attn.scores`, scores(q, k, config.causal))),
      );
      const z = point(`${block}.attn.z`, gather(pattern, v));
      const out = point(`${block}.attn_out`, project(`${block}.o`, z));
      const mid = point(`${block}.resid_mid`, add(point(`${block}.attn.skip`, resid), out));
      const pre = point(`${block}.mlp.pre`, project(`${block}.up`, norm(`${block}.norm`, mid)));
      const mlp = point(`${block}.mlp_out`, project(`${block}.down`, point(`${block}.mlp.post`, relu(pre))));
      resid = point(`${block}.resid_post`, add(point(`${block}.mlp.skip`, mid), mlp));
    }
    point("logits", unembed({ config, weights }, resid));
    return cache;
  }

  /** Logits of a stream.
   * @param {{ config: Config, weights: Record<string, Tensor> }} run @param {Tensor} resid */
  function unembed({ weights }, resid) {
    const x = layerNorm(resid, weights["norm.weight"], weights["norm.bias"]);
    return linear(x, weights["unembed.weight"], weights["unembed.bias"]);
  }

  // Where each kind of part acts, and the axes that positions and its heads or neurons have there.
  /** @type {Record<string, [string, number | null]>} */
  const POINTS = {
    heads: ["attn.z", 1],
    mlps: ["mlp_out", null],
    neurons: ["mlp.post", 1],
    skips: ["attn.skip", null],
    patterns: ["attn.pattern", 0],
    resid: ["resid_pre", null],
  };

  /** The activations that are replaced, each with its heads or neurons (null: all of it).
   * @param {Intervention} part */
  function targets(part) {
    /** @type {Map<string, number[] | null>} */
    const found = new Map((part.names || []).map((name) => [name, null]));
    for (const [kind, [point, axis]] of Object.entries(POINTS)) {
      for (const target of part[/** @type {"heads"} */ (kind)] || []) {
        const [layer, index] = axis === null ? [Number(target), 0] : target;
        const name = `blocks.${layer}.${point}`;
        found.set(name, axis === null ? null : [...(found.get(name) || []), index]);
      }
    }
    return found;
  }

  /** The hook that does interventions, one after the other.
   * @param {Run} run @param {Intervention[]} parts @returns {Hook} */
  function intervene(run, parts) {
    const hooks = parts.map((part) => {
      const found = targets(part);
      const [a, b] = part.source || [0, 0];
      const values = part.kind === "Patch" ? forward(run, encode(run.config, a, b)) : means(run);
      return (/** @type {string} */ name, /** @type {Tensor} */ x) => {
        const indices = found.get(name);
        const value = part.kind === "Ablation" ? zeros(...x.shape) : values[name];
        return indices === undefined ? x : replace(name, x, value, indices, part.positions);
      };
    });
    return (name, x) => hooks.reduce((changed, hook) => hook(name, changed), x);
  }

  /** x with another tensor's values at some heads or neurons and positions.
   * @param {string} name @param {Tensor} x @param {Tensor} other
   * @param {number[] | null} indices @param {number[]} [positions] */
  function replace(name, x, other, indices, positions) {
    const byHead = /attn\.(pattern|scores)$/.test(name);
    const [axis, positionAxis] = byHead ? [0, 1] : [1, 0];
    const strides = x.shape.map((_, i) => x.shape.slice(i + 1).reduce((n, m) => n * m, 1));
    /** @type {(i: number, axis: number) => number} */
    const index = (i, axis) => Math.floor(i / strides[axis]) % x.shape[axis];
    const data = x.data.map((value, i) =>
      (!indices || indices.includes(index(i, axis))) && (!positions || positions.includes(index(i, positionAxis)))
        ? other.data[i]
        : value,
    );
    return { data, shape: x.shape };
  }

  /** @type {WeakMap<Run, Activations>} */
  const known = new WeakMap();

  /** Mean activations: those that are stored, and what linear maps and sums make of them.
   * @param {Run} run @returns {Activations} */
  function means(run) {
    const { config, weights } = run;
    const cache = known.get(run) || {};
    if (known.has(run)) return cache;
    known.set(run, cache);
    let resid = weights["mean.embed"];
    for (let l = 0; l < config.layers; l++) {
      const block = `blocks.${l}`;
      const [z, post] = [weights[`mean.${block}.attn.z`], weights[`mean.${block}.mlp.post`]];
      const out = linear(z, weights[`${block}.o.weight`], weights[`${block}.o.bias`]);
      const mid = add({ data: resid.data, shape: out.shape }, out);
      const mlp = linear(post, weights[`${block}.down.weight`], weights[`${block}.down.bias`]);
      cache[`${block}.attn.z`] = z;
      cache[`${block}.mlp.post`] = post;
      cache[`${block}.mlp_out`] = mlp;
      cache[`${block}.attn.skip`] = cache[`${block}.resid_pre`] = resid;
      cache[`${block}.mlp.skip`] = cache[`${block}.resid_mid`] = mid;
      resid = cache[`${block}.resid_post`] = add(mid, mlp);
    }
    return cache;
  }

  /** The answer's digits, as the logits have them, and all their probabilities.
   * @param {Run} run @param {Tensor} logits */
  function answer({ config }, logits) {
    const probabilities = config.answer.map((position) => [
      ...softmax({ data: CarryMaths.row(logits, position), shape: [12] }).data,
    ]);
    return { digits: probabilities.map(CarryMaths.argmax), probabilities };
  }

  /** What a probe reads: a digit, or 1 for yes.
   * @param {Run} run @param {number} i @param {Activations} cache */
  function readProbe(run, i, cache) {
    const { name, position, bias } = run.probes[i];
    const weight = run.weights[`probe.${i}.weight`];
    const stream = CarryMaths.row(cache[name], position);
    const read = bias.map((value, j) => value + CarryMaths.dot(CarryMaths.row(weight, j), stream));
    return read.length > 1 ? CarryMaths.argmax(read) : Number(read[0] > 0);
  }

  return { digits, encode, forward, unembed, targets, intervene, means, answer, readProbe };
})();
