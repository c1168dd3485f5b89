// Tensors in plain JavaScript: what the forward pass needs, in the words of PyTorch. Numbers are kept in float32.
const CarryMaths = (() => {
  /** @type {(...shape: number[]) => Tensor} */
  const zeros = (...shape) => ({ data: new Float32Array(shape.reduce((x, y) => x * y, 1)), shape });

  /** @summary Unpack what carry_paper/pages/playground.py packed. @param {Packed} packed @returns {Promise<any>} */
  async function unpack({ text, deflated, header }) {
    const Inflate = /** @type {any} */ (globalThis).DecompressionStream; // older browsers have none
    if (!Inflate) throw new Error("This browser cannot unpack the weights: expected one of 2023 or later.");
    const bytes = new Uint8Array(deflated);
    for (let at = 0, read = 0, held = 0, bits = 0; at < deflated; at++, bits -= 8) {
      for (; bits < 8; bits += 15) held = ((held & 127) << 15) | (text.charCodeAt(read++) - 0x3000);
      bytes[at] = held >> (bits - 8);
    }
    const stream = new Blob([bytes]).stream().pipeThrough(new Inflate("deflate-raw"));
    const all = new Uint8Array(await new Response(stream).arrayBuffer());
    const { shapes, ...about } = JSON.parse(new TextDecoder().decode(all.subarray(0, header)));
    const apart = (all.length - header) / 2; // the high byte of a number and its low byte
    const weights = /** @type {Weights} */ ({});
    let start = header;
    for (const [name, shape] of Object.entries(shapes)) {
      const { data } = (weights[name] = zeros(...shape));
      for (let i = 0; i < data.length; i++, start++) data[i] = half((all[start] << 8) | all[start + apart]);
    }
    return { ...about, weights };
  }

  /** @summary The number that the bits of a float16 mean. @param {number} bits */
  function half(bits) {
    const [sign, exponent, fraction] = [bits & 0x8000 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
    return exponent ? sign * 2 ** (exponent - 15) * (1 + fraction / 1024) : (sign * fraction) / 2 ** 24;
  }

  /** @type {Affine} x Wᵀ + b, four outputs at a time (weight has 4 n rows), since loads cost more than products */
  function linear(x, weight, bias) {
    const [outputs, inputs] = weight.shape;
    const result = zeros(x.data.length / inputs, outputs);
    const [from, w] = [x.data, weight.data];
    for (let at = 0; at < result.data.length; at += 4) {
      const o = at % outputs;
      let [s0, s1, s2, s3] = bias.data.subarray(o, o + 4);
      let [i, j] = [((at - o) / outputs) * inputs, o * inputs];
      for (const end = i + inputs; i < end; i++, j++) {
        s0 += from[i] * w[j];
        s1 += from[i] * w[j + inputs];
        s2 += from[i] * w[j + 2 * inputs];
        s3 += from[i] * w[j + 3 * inputs];
      }
      result.data.set([s0, s1, s2, s3], at);
    }
    return result;
  }

  /** @type {Affine} each row of x to mean 0 and variance 1, then scaled and shifted */
  function layerNorm(x, weight, bias) {
    const [rows, d] = x.shape;
    const result = zeros(rows, d);
    for (let i = 0; i < rows; i++) {
      const mean = row(x, i).reduce((sum, value) => sum + value / d, 0);
      const centred = row(x, i).map((value) => value - mean);
      const scale = 1 / Math.sqrt(dot(centred, centred) / d + 1e-5);
      centred.forEach((value, j) => (result.data[i * d + j] = value * scale * weight.data[j] + bias.data[j]));
    }
    return result;
  }

  /** @param {Tensor} x [pos, head, d_head], of which each adjacent pair turns by its position's angle (RoFormer) */
  function rotate(x) {
    const [length, heads, size] = x.shape;
    const result = zeros(...x.shape);
    for (let position = 0; position < length; position++) {
      for (let i = 0; i < size; i += 2) {
        const angle = position * 10000 ** (-i / size);
        const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
        for (let head = 0, at = position * heads * size + i; head < heads; head++, at += size) {
          result.data[at] = x.data[at] * cos - x.data[at + 1] * sin;
          result.data[at + 1] = x.data[at] * sin + x.data[at + 1] * cos;
        }
      }
    }
    return result;
  }

  /** @summary Softmax over the last axis. @param {Tensor} x */
  function softmax(x) {
    const result = zeros(...x.shape);
    const size = x.shape[x.shape.length - 1];
    for (let start = 0; start < x.data.length; start += size) {
      const logits = x.data.subarray(start, start + size);
      const most = Math.max(...logits);
      const total = logits.reduce((sum, value) => sum + Math.exp(value - most), 0);
      logits.forEach((value, i) => (result.data[start + i] = Math.exp(value - most) / total));
    }
    return result;
  }

  /** @type {(length: number, heads: number, size: number, at: number) => number[]} starts and places in a pattern */
  function cell(length, heads, size, at) {
    const [head, query, key] = [Math.floor(at / length / length), Math.floor(at / length) % length, at % length];
    return [(query * heads + head) * size, (key * heads + head) * size, query, key];
  }

  /** @type {(q: Tensor, k: Tensor, causal: boolean) => Tensor} q kᵀ / √d_head, `[head, query, key]` */
  function scores(q, k, causal) {
    const [length, heads, size] = q.shape;
    const result = zeros(heads, length, length);
    for (let at = 0; at < result.data.length; at++) {
      const [i, j, query, key] = cell(length, heads, size, at);
      const product = dot(q.data.subarray(i, i + size), k.data.subarray(j, j + size));
      result.data[at] = causal && key > query ? -Infinity : product / Math.sqrt(size);
    }
    return result;
  }

  /** @summary What each head gathers, `[query, head, d_head]`. @param {Tensor} pattern @param {Tensor} v */
  function gather(pattern, v) {
    const [length, heads, size] = v.shape;
    const result = zeros(...v.shape);
    pattern.data.forEach((p, at) => {
      const [to, from] = cell(length, heads, size, at);
      for (let i = 0; i < size; i++) result.data[to + i] += p * v.data[from + i];
    });
    return result;
  }

  /** @type {(x: Tensor, y: Tensor) => Tensor} */
  const add = (x, y) => ({ data: x.data.map((value, i) => value + y.data[i]), shape: x.shape });
  /** @type {(x: Tensor) => Tensor} */
  const relu = (x) => ({ data: x.data.map((value) => (value > 0 ? value : 0)), shape: x.shape });
  /** @summary The values of one row of a matrix. @param {Tensor} x @param {number} i */
  const row = (x, i) => x.data.subarray((i * x.data.length) / x.shape[0], ((i + 1) * x.data.length) / x.shape[0]);

  function dot(/** @type {Float32Array} */ x, /** @type {Float32Array} */ y) {
    let sum = 0;
    for (let i = 0; i < x.length; i++) sum += x[i] * y[i];
    return sum;
  }

  /** @summary Where the greatest value is. @param {number[]} values */
  const argmax = (values) => values.reduce((best, value, i) => (value > values[best] ? i : best), 0);
  return { zeros, unpack, linear, layerNorm, rotate, softmax, scores, gather, add, relu, row, dot, argmax };
})();
