// Matrix products in float. The right factor is packed in panels of `PANEL` columns: a panel stays
// in the nearest cache while the rows of the left factor pass by it.
#pragma once
#include "vectors.h"

namespace {
constexpr int PANEL = 16;
constexpr int ROWS = 6;  // of the result, in registers: twelve vectors of AVX2
using Panel = Vecs<PANEL / LANES>;

// C += A B for ROWS rows of A, `width` apart, and one panel of B, [K][PANEL].
INLINE void add_product(Panel (&C)[ROWS], const float* A, long width, const float* B, int K) {
  for (int k = 0; k < K; k++, B += PANEL) {
    Panel b(B);
#pragma GCC unroll 6
    for (int i = 0; i < ROWS; i++) C[i] = C[i] + A[i * width + k] * b;
  }
}
}  // namespace

extern "C" {
// A linear map W x + b from `in` to `out` columns, a multiple of PANEL; `compiled.py` fills it in.
struct Linear {
  int in, out;
  const float* weight;  // [out / PANEL][in][PANEL]
  const float* bias;
};
}

namespace {
// W x + b of `rows` rows of x, a multiple of ROWS, `width` apart: f(row, first column, one panel).
template <class Function>
INLINE void apply(const Linear& map, const float* x, long width, int rows, Function f) {
  for (int c = 0; c < map.out; c += PANEL) {
    const float* panel = map.weight + (long)c * map.in;
    const Panel bias(map.bias + c);
    for (int r = 0; r < rows; r += ROWS) {
      Panel C[ROWS];
      for (Panel& row : C) row = bias;
      add_product(C, x + r * width, width, panel, map.in);
#pragma GCC unroll 6
      for (int i = 0; i < ROWS; i++) f(r + i, c, C[i]);
    }
  }
}

constexpr int AHEAD = 8;  // how soon the weights of a column are asked for

// The columns of ROWS rows that are not all zero.
template <int MOST> struct Columns {
  int count = 0;
  int number[MOST + AHEAD];
  float value[MOST][ROWS];
};

// W x + b of ROWS rows, from some columns of x: f(row, first column, one panel).
template <int MOST, class Function>
INLINE void apply(const Linear& map, const Columns<MOST>& x, Function f) {
  for (int c = 0; c < map.out; c += PANEL) {
    const float* panel = map.weight + (long)c * map.in;
    Panel C[ROWS];
    for (Panel& row : C) row = Panel(map.bias + c);
    for (int k = 0; k < x.count; k++) {
      __builtin_prefetch(panel + (long)x.number[k + AHEAD] * PANEL);
      Panel b(panel + (long)x.number[k] * PANEL);
#pragma GCC unroll 6
      for (int i = 0; i < ROWS; i++) C[i] = C[i] + x.value[k][i] * b;
    }
#pragma GCC unroll 6
    for (int i = 0; i < ROWS; i++) f(i, c, C[i]);
  }
}
}  // namespace
