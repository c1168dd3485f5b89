// The transformer of carry_core/model.py with its hook points, carry_core's interventions and sums, named as there.
const CarryModel = (() => {
  const { zeros, linear, layerNorm, rotate, softmax, scores, gather, add, relu, row, dot, argmax } = CarryMaths;
  const [PLUS, EQUALS] = [10, 11];
  const LOOKS = 50; // steps in which a digit is looked for along a line
  const HALVINGS = 12; // of a step in which the digit changes

  /** @summary Decimal digits, most significant first. @param {number} number @param {number} width */
  const digits = (number, width) => [...String(number).padStart(width, "0")].map(Number);

  /** @type {(config: Config, a: number, b: number) => number[]} tokens of a + b; a decoder's hold the answer too */
  function encode({ width, causal }, a, b) {
    const tail = causal ? digits(a + b, width) : Array(width).fill(EQUALS);
    return [...digits(a, width), PLUS, ...digits(b, width), ...tail];
  }

  /** @type {(apply: Affine) => Layer} with the weight and bias of that name */
  const named = (apply) => (weights, name, x) => apply(x, weights[`${name}.weight`], weights[`${name}.bias`]);
  const [project, norm] = [named(linear), named(layerNorm)];
  /** @summary Logits of a stream. @param {Run} run @param {Tensor} resid */
  const unembed = ({ weights }, resid) => project(weights, "unembed", norm(weights, "norm", resid));

  /** @type {(run: Run, layer: number, mid: Tensor, point: Hook) => Tensor} from resid_mid to resid_post */
  function addMLP({ weights }, layer, mid, point) {
    const block = `blocks.${layer}`;
    const pre = point(`${block}.mlp.pre`, project(weights, `${block}.up`, norm(weights, `${block}.norm`, mid)));
    const post = point(`${block}.mlp.post`, relu(pre));
    const out = point(`${block}.mlp_out`, project(weights, `${block}.down`, post));
    return point(`${block}.resid_post`, add(point(`${block}.mlp.skip`, mid), out));
  }

  /** @type {(run: Run, tokens: number[], hook?: Hook) => Activations} all by name, with what the hook does to each */
  function forward(run, tokens, hook = /** @type {Hook} */ ((_, x) => x)) {
    const { config, weights } = run;
    const cache = /** @type {Activations} */ ({});
    const point = /** @type {Hook} */ ((name, x) => (cache[name] = hook(name, x)));
    const byHead = [tokens.length, config.heads, config.d_model / config.heads];
    const embedding = zeros(tokens.length, config.d_model);
    tokens.forEach((token, position) => {
      const scaled = row(weights["embed.weight"], token).map((x) => x * Math.sqrt(config.d_model));
      embedding.data.set(scaled, position * config.d_model);
    });
    let resid = point("embed", embedding);
    for (let l = 0; l < config.layers; l++) {
      const block = `blocks.${l}`;
      resid = point(`${block}.resid_pre`, resid);
      const x = norm(weights, `${block}.norm`, resid);
      const [q, k, v] = ["q", "k", "v"].map((name) => {
        const { data } = project(weights, `${block}.${name}`, x);
        return rotate(point(`${block}.attn.${name}`, { data, shape: byHead }));
      });
      const attention = point(`${block}.attn.scores`, scores(q, k, config.causal));
      const pattern = point(`${block}.attn.pattern`, softmax(attention));
      const z = point(`${block}.attn.z`, gather(pattern, v));
      const out = point(`${block}.attn_out`, project(weights, `${block}.o`, z));
      const mid = point(`${block}.resid_mid`, add(point(`${block}.attn.skip`, resid), out));
      resid = addMLP(run, l, mid, point);
    }
    point("logits", unembed(run, resid));
    return cache;
  }

  const INDEXED = { heads: "attn.z", neurons: "mlp.post", patterns: "attn.pattern" }; // where heads or neurons act
  const POINTS = { ...INDEXED, mlps: "mlp_out", skips: "attn.skip", resid: "resid_pre" }; // all kinds of parts

  /** @type {(part: Intervention) => Targets} the activations that are replaced, each with its heads or neurons */
  function targets(part) {
    const found = /** @type {Targets} */ (new Map((part.names || []).map((name) => [name, null])));
    for (const [kind, point] of Object.entries(POINTS)) {
      for (const target of part[/** @type {"heads"} */ (kind)] || []) {
        const [layer, index] = [target].flat();
        const name = `blocks.${layer}.${point}`;
        found.set(name, kind in INDEXED ? [...(found.get(name) || []), index] : null);
      }
    }
    return found;
  }

  /** @type {(run: Run, parts: Intervention[]) => Hook} one after the other */
  function intervene(run, parts) {
    const hooks = parts.map((part) => {
      const found = targets(part);
      const values = part.source ? forward(run, encode(run.config, ...part.source)) : means(run);
      return /** @type {Hook} */ (name, x) => {
        const indices = found.get(name);
        const value = part.kind === "Ablation" ? zeros(...x.shape) : values[name];
        return indices === undefined ? x : replace(name, x, value, indices, part.positions);
      };
    });
    return (name, x) => hooks.reduce((now, hook) => hook(name, now), x);
  }

  /** @type {Replace} x with another's values at some heads or neurons and positions (all where none are named) */
  function replace(name, { data, shape }, other, indices, positions) {
    const [axis, positionAxis] = /attn\.(pattern|scores)$/.test(name) ? [0, 1] : [1, 0];
    const strides = shape.map((_, i) => shape.slice(i + 1).reduce((n, m) => n * m, 1));
    /** @type {(i: number, axis: number, wanted?: number[] | null) => boolean} */
    const fits = (i, axis, wanted) => !wanted || wanted.includes(Math.floor(i / strides[axis]) % shape[axis]);
    const replaced = (/** @type {number} */ i) => fits(i, axis, indices) && fits(i, positionAxis, positions);
    return { data: data.map((value, i) => (replaced(i) ? other.data[i] : value)), shape };
  }

  /** @summary Mean activations: those that are stored, and what linear maps and sums make of them. @param {Run} run */
  function means({ config, weights }) {
    const cache = /** @type {Activations} */ ({});
    let resid = weights["mean.embed"];
    for (let l = 0; l < config.layers; l++) {
      const block = `blocks.${l}`;
      for (const name of ["attn.z", "mlp.post"]) cache[`${block}.${name}`] = weights[`mean.${block}.${name}`];
      const mid = add(project(weights, `${block}.o`, cache[`${block}.attn.z`]), resid);
      cache[`${block}.mlp_out`] = project(weights, `${block}.down`, cache[`${block}.mlp.post`]);
      cache[`${block}.attn.skip`] = cache[`${block}.resid_pre`] = resid;
      cache[`${block}.mlp.skip`] = cache[`${block}.resid_mid`] = mid;
      resid = cache[`${block}.resid_post`] = add(mid, cache[`${block}.mlp_out`]);
    }
    return cache;
  }

  /** @summary A run's lines with their directions. @param {Run} run @returns {FittedLine[]} */
  const linesOf = ({ lines, weights }) =>
    lines.map((line, i) => ({ ...line, direction: weights[`line.${i}.direction`].data }));

  /** @type {(line: FittedLine, stream: Float32Array) => number} 0 is the mean without a carry, 1 with one */
  const coordinate = ({ direction, zero, one }, stream) => (dot(direction, stream) - zero) / (one - zero);

  /** @type {(line: FittedLine, stream: Float32Array, value: number) => Float32Array} moved along the line */
  function movedTo(line, stream, value) {
    const { direction, zero, one } = line;
    const step = ((value - coordinate(line, stream)) * (one - zero)) / dot(direction, direction);
    return stream.map((x, i) => x + step * direction[i]);
  }

  /** @type {(run: Run, held: Coordinates) => Hook} holds each of these coordinates */
  function holdCoordinates(run, held) {
    const lines = linesOf(run).filter(({ id }) => id in held);
    return (name, x) => {
      const here = lines.filter((line) => line.name === name);
      if (!here.length) return x;
      const data = x.data.slice();
      const moved = { data, shape: x.shape };
      for (const line of here) {
        data.set(movedTo(line, row(moved, line.position), held[line.id]), line.position * x.shape[1]);
      }
      return moved;
    };
  }

  /** @type {DigitAt} of a pass: what the model answers in the line's column if its coordinate has a value */
  function digitAt(run, line, { unheld, hook }, held) {
    const { position } = line;
    const others = linesOf(run).filter((x) => x.id in held && x.id !== line.id && x.position === position);
    const mid = others.reduce((x, other) => movedTo(other, x, held[other.id]), row(unheld[line.name], position));
    const atPosition = /** @type {Hook} */ ((name, x) => {
      const all = zeros(3 * run.config.width + 1, x.data.length); // a hook expects all positions
      all.data.set(x.data, position * x.data.length);
      return { data: row(hook(name, all), position), shape: x.shape };
    });
    return (value) => {
      const moved = { data: movedTo(line, mid, value), shape: [1, mid.length] };
      const stream = addMLP(run, run.config.layers - 1, moved, atPosition);
      return argmax([...unembed(run, stream).data]);
    };
  }

  /** @type {(digit: (value: number) => number, from: number, to: number) => Stretch[]} of coordinates with one digit */
  function stretches(digit, from, to) {
    const found = [{ from, digit: digit(from) }];
    for (let i = 1; i <= LOOKS; i++) {
      let low = from + ((to - from) * (i - 1)) / LOOKS;
      const high = from + ((to - from) * i) / LOOKS;
      while (digit(high) !== found[found.length - 1].digit) {
        low = changeBetween(digit, low, high);
        found.push({ from: low, digit: digit(low) });
      }
    }
    return found;
  }

  /** @type {(digit: (value: number) => number, low: number, high: number) => number} where it is no longer low's */
  function changeBetween(digit, low, high) {
    const before = digit(low);
    for (let i = 0; i < HALVINGS; i++) {
      const middle = (low + high) / 2;
      if (digit(middle) === before) low = middle;
      else high = middle;
    }
    return high;
  }

  /** @summary The answer's digits and their probabilities by the logits. @param {Run} run @param {Tensor} logits */
  function answer({ config }, logits) {
    const probabilities = config.answer.map((i) => [...softmax({ data: row(logits, i), shape: [12] }).data]);
    return { digits: probabilities.map(argmax), probabilities };
  }

  /** @type {(run: Run, i: number, cache: Activations) => number} what a probe reads: a digit, or 1 for yes */
  function readProbe(run, i, cache) {
    const { name, position, bias } = run.probes[i];
    const [weight, stream] = [run.weights[`probe.${i}.weight`], row(cache[name], position)];
    const read = bias.map((value, j) => value + dot(row(weight, j), stream));
    return read.length > 1 ? argmax(read) : Number(read[0] > 0);
  }
  const line = { linesOf, coordinate, holdCoordinates, digitAt, stretches };
  return { digits, encode, forward, unembed, targets, intervene, means, answer, readProbe, ...line };
})();
