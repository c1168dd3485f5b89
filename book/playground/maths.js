// Tensors in plain JavaScript: what the forward pass needs, in the words of PyTorch. Numbers are kept in float32.
"use strict";

const CarryMaths = (() => {
  /** @type {(...shape: number[]) => Tensor} */
  const zeros = (...shape) => ({ data: new Float32Array(shape.reduce((x, y) => x * y, 1)), shape });

  /** What Python packed (carry_core/plots/playground.py): bytes, deflated, as characters of 15 bits from U+3000 on.
   * @param {{ text: string, deflated: number, header: number }} packed @returns {Promise<any>} */
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
    const high = all.subarray(header, (header + all.length) / 2);
    const low = all.subarray((header + all.length) / 2);
    /** @type {Record<string, Tensor>} */
    const tensors = {};
    let start = 0;
    for (const [name, shape] of Object.entries(shapes)) {
      const tensor = zeros(...shape);
      tensor.data.forEach((_, i) => (tensor.data[i] = half((high[start + i] << 8) | low[start + i])));
      tensors[name] = tensor;
      start += tensor.data.length;
    }
    return { ...about, weights: tensors };
  }

  /** The number that the bits of a float16 mean.
   * @param {number} bits */
  function half(bits) {
    const [sign, exponent, fraction] = [bits & 0x8000 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
    return exponent ? sign * 2 ** (exponent - 15) * (1 + fraction / 1024) : (sign * fraction) / 2 ** 24;
  }

  /** x Wᵀ + b for each row of x: two rows and four outputs at a time, since loads cost more than products.
   * @param {Tensor} x of an even number of rows @param {Tensor} weight of 4 n rows @param {Tensor} bias */
  function linear(x, weight, bias) {
    const [outputs, inputs] = weight.shape;
    const rows = x.data.length / inputs;
    const result = zeros(rows, outputs);
    const [from, w, b, to] = [x.data, weight.data, bias.data, result.data];
    for (let o = 0; o < outputs; o += 4) {
      for (let row = 0; row < rows; row += 2) {
        let [s0, s1, s2, s3, t0, t1, t2, t3] = [0, 0, 0, 0, 0, 0, 0, 0];
        for (let i = row * inputs, j = o * inputs, end = i + inputs; i < end; i++, j++) {
          const s = from[i];
          const t = from[i + inputs];
          s0 += s * w[j];
          t0 += t * w[j];
          s1 += s * w[j + inputs];
          t1 += t * w[j + inputs];
          s2 += s * w[j + 2 * inputs];
          t2 += t * w[j + 2 * inputs];
          s3 += s * w[j + 3 * inputs];
          t3 += t * w[j + 3 * inputs];
        }
        [s0, s1, s2, s3].forEach((sum, i) => (to[row * outputs + o + i] = sum + b[o + i]));
        [t0, t1, t2, t3].forEach((sum, i) => (to[(row + 1) * outputs + o + i] = sum + b[o + i]));
      }
    }
    return result;
  }

  /** Each row of x to mean 0 and variance 1, then scaled and shifted.
   * @param {Tensor} x @param {Tensor} weight @param {Tensor} bias */
  function layerNorm(x, weight, bias) {
    const [rows, d] = x.shape;
    const result = zeros(rows, d);
    for (let row = 0; row < rows; row++) {
      const values = x.data.subarray(row * d, (row + 1) * d);
      let [mean, variance] = [0, 0];
      for (const value of values) mean += value / d;
      for (const value of values) variance += (value - mean) ** 2 / d;
      const scale = 1 / Math.sqrt(variance + 1e-5);
      for (let i = 0; i < d; i++) result.data[row * d + i] = (values[i] - mean) * scale * weight.data[i] + bias.data[i];
    }
    return result;
  }

  /** @type {Map<string, Float64Array[]>} */
  const turns = new Map();

  /** Cosine and sine of the angle at each position and pair of coordinates, worked out once.
   * @param {number} length @param {number} size */
  function angles(length, size) {
    const key = `${length},${size}`;
    if (!turns.has(key)) {
      const angle = (/** @type {number} */ i) => Math.floor((2 * i) / size) * 10000 ** (-((2 * i) % size) / size);
      const [cos, sin] = [Math.cos, Math.sin].map((turn) =>
        Float64Array.from({ length: (length * size) / 2 }, (_, i) => turn(angle(i))),
      );
      turns.set(key, [cos, sin]);
    }
    return /** @type {Float64Array[]} */ (turns.get(key));
  }

  /** Turn each adjacent pair of coordinates by its position's angle (RoFormer).
   * @param {Tensor} x [pos, head, d_head] */
  function rotate(x) {
    const [length, heads, size] = x.shape;
    const result = zeros(...x.shape);
    const [cos, sin] = angles(length, size);
    for (let position = 0, at = 0; position < length; position++) {
      for (let head = 0; head < heads; head++) {
        for (let pair = (position * size) / 2, end = pair + size / 2; pair < end; pair++, at += 2) {
          result.data[at] = x.data[at] * cos[pair] - x.data[at + 1] * sin[pair];
          result.data[at + 1] = x.data[at] * sin[pair] + x.data[at + 1] * cos[pair];
        }
      }
    }
    return result;
  }

  /** Softmax over the last axis.
   * @param {Tensor} x */
  function softmax(x) {
    const result = zeros(...x.shape);
    const size = x.shape[x.shape.length - 1];
    for (let start = 0; start < x.data.length; start += size) {
      let [most, total] = [-Infinity, 0];
      for (let i = start; i < start + size; i++) most = Math.max(most, x.data[i]);
      for (let i = start; i < start + size; i++) total += result.data[i] = Math.exp(x.data[i] - most);
      for (let i = start; i < start + size; i++) result.data[i] /= total;
    }
    return result;
  }

  /** q kᵀ / √d_head, `[head, query, key]`; no key is after its query if causal.
   * @param {Tensor} q @param {Tensor} k @param {boolean} causal */
  function scores(q, k, causal) {
    const [length, heads, size] = q.shape;
    const result = zeros(heads, length, length);
    for (let head = 0, at = 0; head < heads; head++) {
      for (let query = 0; query < length; query++) {
        for (let key = 0; key < length; key++, at++) {
          let [i, j, sum] = [(query * heads + head) * size, (key * heads + head) * size, 0];
          for (const end = i + size; i < end; i++, j++) sum += q.data[i] * k.data[j];
          result.data[at] = causal && key > query ? -Infinity : sum / Math.sqrt(size);
        }
      }
    }
    return result;
  }

  /** What each head gathers, `[query, head, d_head]`.
   * @param {Tensor} pattern @param {Tensor} v */
  function gather(pattern, v) {
    const [length, heads, size] = v.shape;
    const result = zeros(...v.shape);
    for (let head = 0, at = 0; head < heads; head++) {
      for (let query = 0; query < length; query++) {
        const to = (query * heads + head) * size;
        for (let key = 0; key < length; key++, at++) {
          const from = (key * heads + head) * size;
          for (let i = 0; i < size; i++) result.data[to + i] += pattern.data[at] * v.data[from + i];
        }
      }
    }
    return result;
  }

  /** @param {Tensor} x @param {Tensor} y */
  function add(x, y) {
    const result = zeros(...x.shape);
    for (let i = 0; i < x.data.length; i++) result.data[i] = x.data[i] + y.data[i];
    return result;
  }

  /** @param {Tensor} x */
  function relu(x) {
    const result = zeros(...x.shape);
    for (let i = 0; i < x.data.length; i++) result.data[i] = x.data[i] > 0 ? x.data[i] : 0;
    return result;
  }

  /** The values of one row of a matrix.
   * @param {Tensor} x @param {number} i */
  const row = (x, i) => x.data.subarray((i * x.data.length) / x.shape[0], ((i + 1) * x.data.length) / x.shape[0]);

  /** @param {ArrayLike<number>} x @param {ArrayLike<number>} y */
  function dot(x, y) {
    let sum = 0;
    for (let i = 0; i < x.length; i++) sum += x[i] * y[i];
    return sum;
  }

  /** Where the greatest value is.
   * @param {ArrayLike<number>} values */
  function argmax(values) {
    let best = 0;
    for (let i = 1; i < values.length; i++) if (values[i] > values[best]) best = i;
    return best;
  }

  return { zeros, unpack, linear, layerNorm, rotate, softmax, scores, gather, add, relu, row, dot, argmax };
})();
