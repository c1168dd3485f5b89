// Tensors in plain JavaScript: what the forward pass needs, in the words of PyTorch. Numbers are kept in float32.
"use strict";

/** @typedef {{ data: Float32Array, shape: number[] }} Tensor */

const CarryMaths = (() => {
  /** @type {(...shape: number[]) => Tensor} */
  const zeros = (...shape) => ({ data: new Float32Array(shape.reduce((x, y) => x * y, 1)), shape });

  /** Float16 values in base64, as float32.
   * @param {string} text */
  function decode(text) {
    const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
    const halves = new Uint16Array(bytes.buffer);
    return Float32Array.from(halves, (half) => {
      const [sign, exponent, fraction] = [half & 0x8000 ? -1 : 1, (half >> 10) & 31, half & 1023];
      if (exponent === 31) return fraction ? NaN : sign * Infinity;
      return exponent ? sign * 2 ** (exponent - 15) * (1 + fraction / 1024) : (sign * fraction) / 2 ** 24;
    });
  }

  /** x Wᵀ + b for each row of x.
   * @param {Tensor} x @param {Tensor} weight [out, in] @param {Tensor} bias */
  function linear(x, weight, bias) {
    const [outputs, inputs] = weight.shape;
    const rows = x.data.length / inputs;
    const result = zeros(rows, outputs);
    const [from, w] = [x.data, weight.data];
    for (let row = 0; row < rows; row++) {
      for (let o = 0; o < outputs; o++) {
        let [i, j, even, odd] = [row * inputs, o * inputs, 0, 0];
        for (const end = i + inputs; i < end; i += 2, j += 2) {
          even += from[i] * w[j];
          odd += from[i + 1] * w[j + 1];
        }
        result.data[row * outputs + o] = even + odd + bias.data[o];
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

  /** Turn each adjacent pair of coordinates by its position's angle (RoFormer).
   * @param {Tensor} x [pos, head, d_head] */
  function rotate(x) {
    const [length, heads, size] = x.shape;
    const result = zeros(...x.shape);
    for (let position = 0; position < length; position++) {
      for (let i = 0; i < size; i += 2) {
        const angle = position * 10000 ** (-i / size);
        const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
        for (let head = 0; head < heads; head++) {
          const at = (position * heads + head) * size + i;
          const [real, imaginary] = [x.data[at], x.data[at + 1]];
          result.data[at] = real * cos - imaginary * sin;
          result.data[at + 1] = real * sin + imaginary * cos;
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
  const add = (x, y) => ({ data: x.data.map((value, i) => value + y.data[i]), shape: x.shape });

  /** @param {Tensor} x */
  const relu = (x) => ({ data: x.data.map((value) => Math.max(value, 0)), shape: x.shape });

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

  return { zeros, decode, linear, layerNorm, rotate, softmax, scores, gather, add, relu, row, dot, argmax };
})();
