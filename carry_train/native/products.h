// Matrix products, in vector or in matrix registers, and linear maps with their gradients.
//
// The rows of a left factor are as activations are: a word has successive numbers of a row. Those
// of a right factor are words of successive rows, so that a lane multiplies what belongs together.
// Weights are packed so, in panels of a unit of columns: [columns / UNIT][K / NUMBERS][UNIT].
#pragma once
#include "matrix_registers.h"
#include "numbers.h"
#include "sizes.h"

namespace {
// The part of a product that is in registers at once: up to ROWS rows and a unit of columns.
constexpr int ROWS = LANES == 8 ? 6 : 4;
constexpr int UNIT_VECTORS = LANES == 8 ? 2 : 4;
constexpr int UNIT = UNIT_VECTORS * LANES;
using Unit = Vecs<UNIT_VECTORS>;

struct Left {
  const Word* start;
  long row, step;  // words from a row to the next, and along a row
};
struct Right {
  const Word* start;
  long row;
};

// A B for N rows and a unit of columns, in registers, then to C [N][UNIT]. The caller reads it from
// there: if it were given the registers, the compiler would run out of them in the loop.
template <int N>
INLINE void multiply_words(float* C, Left A, Right B, int words_of_a_row) {
  Unit sums[N];
  const Word *a = A.start, *b = B.start;
  for (int k = 0; k < words_of_a_row; k++, a += A.step, b += B.row) {
    Words right[UNIT_VECTORS];
    for (int j = 0; j < UNIT_VECTORS; j++) right[j] = words(b + LANES * j);
#pragma GCC unroll 6
    for (int i = 0; i < N; i++) {
      const Words left = broadcast(a[i * A.row]);
      for (int j = 0; j < UNIT_VECTORS; j++)
        sums[i].v[j] = multiply_add(sums[i].v[j], right[j], left);
    }
  }
  for (int i = 0; i < N; i++) store(C + i * UNIT, sums[i]);
}

// A B for some rows, a multiple of four, and a unit of columns: each row's go to f(row, columns).
template <class Function>
INLINE void product(Left A, Right B, int rows, int words_of_a_row, Function f) {
  for (int r = 0, count; r < rows; r += count) {
    const int left = rows - r;
    count = left > 4 && left != 8 ? ROWS : 4;  // so that four or none are left at the end
    alignas(64) float C[ROWS][UNIT];
    const Left from_r{A.start + r * A.row, A.row, A.step};
    if (count == ROWS) multiply_words<ROWS>(C[0], from_r, B, words_of_a_row);
    else multiply_words<4>(C[0], from_r, B, words_of_a_row);
    for (int i = 0; i < count; i++) f(r + i, Unit(C[i]));
  }
}

// A B for `rows` rows of A, `width` apart, of which the first K numbers count, and B packed from
// `most` rows. Each row's unit of columns goes to f(row, first column, columns).
template <class Function>
INLINE void product(const Number* A, int rows, long width, int K, const Word* B, int most,
                    int columns, Function f) {
  for (int c = 0; c < columns; c += UNIT) {
    const Word* panel = B + (long)c * most / NUMBERS;
    if (has_matrix_registers) {
      for (int r = 0; r < rows; r += 32) {
        alignas(64) float C[32][UNIT];
        matrix_product(C[0], UNIT, false, A + r * width, width, panel, K);
        for (int i = 0; i < 32; i++) f(r + i, c, Unit(C[i]));
      }
      continue;
    }
    product({(const Word*)A, width / NUMBERS, 1}, {panel, UNIT}, rows, K / NUMBERS,
            [&](int row, Unit y) { f(row, c, y); });
  }
}

// ---- activations as factors: fp32 where they are, bf16 interleaved into `memory` ----
// Some columns of `rows` rows of A, `width` apart.
INLINE Right right_factor(const Number* A, int rows, long width, int columns, Word* memory) {
  if (NUMBERS == 1) return {(const Word*)A, width};
  interleave(A, rows, width, columns, memory, columns);
  return {memory, columns};
}
// The transpose of some columns.
INLINE Left left_factor_of_columns(const Number* A, int rows, long width, int columns,
                                   Word* memory) {
  const Right words = right_factor(A, rows, width, columns, memory);
  return {words.start, 1, words.row};
}

// A linear map W x + b, whose sizes are multiples of 128, and its gradients.
struct Linear {
  int in, out;
  Word* forward;   // W packed for W x
  Word* backward;  // and for W' dy
  float* bias;
  float* d_weight;  // [out][in]
  float* d_bias;

  // W x + b of a tile, the first `outputs` of it, to f(row, first column, a unit of columns). Rows
  // of x are `width` apart.
  template <class Function>
  INLINE void apply(const Number* x, long width, int outputs, Function f) const {
    product(x, TILE, width, in, forward, in, outputs,
            [&](int row, int column, Unit y) { f(row, column, y + Unit(bias + column)); });
  }

  // From the gradients dy of the first `outputs`, for a tile or two of rows: adds to d_weight and
  // d_bias, with the inputs x; W' dy to f(row, first column, a unit of columns).
  template <class Function>
  INLINE void back(const Number* dy, long dy_width, const Number* x, long x_width, int rows,
                   int outputs, Function f) const {
    alignas(64) Word dy_words[TILE * D], x_words[MOST_NEURONS / UNIT][TILE * UNIT];
    Right inputs[MOST_NEURONS / UNIT];
    for (int i = 0; i < in / UNIT; i++)
      inputs[i] = right_factor(x + i * UNIT, rows, x_width, UNIT, x_words[i]);
    for (int o = 0; o < outputs; o += D) {
      if (has_matrix_registers)
        for (int tile = 0; tile < rows; tile += TILE) {
          transpose_tile(dy + tile * dy_width + o, dy_width, dy_words);
          add_weight_gradients_of_tile(o, tile, dy_words, x_words);
        }
      const Left gradients = left_factor_of_columns(dy + o, rows, dy_width, D, dy_words);
      add_bias_gradients(o, rows, gradients);
      if (!has_matrix_registers) add_weight_gradients(o, rows, gradients, inputs);
    }
    product(dy, rows, dy_width, outputs, backward, out, in, f);
  }

 private:
  INLINE void add_weight_gradients_of_tile(int o, int tile, const Word* dy_transposed,
                                           const Word (*x_words)[TILE * UNIT]) const {
    for (int i = 0; i < in; i += UNIT)
      for (int r = 0; r < D; r += 32)
        matrix_product(d_weight + (o + r) * in + i, in, true,
                       (const Number*)dy_transposed + r * TILE, TILE,
                       x_words[i / UNIT] + tile / NUMBERS * UNIT, TILE);
  }
  INLINE void add_weight_gradients(int o, int rows, Left gradients, const Right* inputs) const {
    for (int i = 0; i < in; i += UNIT)
      product(gradients, inputs[i / UNIT], D, rows / NUMBERS, [&](int row, Unit sums) {
        float* to = d_weight + (o + row) * in + i;
        store(to, Unit(to) + sums);
      });
  }
  INLINE void add_bias_gradients(int o, int rows, Left gradients) const {
    for (int c = 0; c < D; c += 64) {
      Block sums(d_bias + o + c);
      for (int r = 0; r < rows / NUMBERS; r++)
        for (int j = 0; j < 64 / LANES; j++)
          sums.v[j] = multiply_add(
              sums.v[j], words(gradients.start + r * gradients.step + c + LANES * j),
              broadcast(ONES));
      store(d_bias + o + c, sums);
    }
  }
};
}  // namespace
