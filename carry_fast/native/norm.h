// LayerNorm without its gain and shift, of as many rows of the residual stream at a time as
// a vector has lanes.
//
//   n = (x - mean(x)) / sd(x)        dx = (dn - mean(dn) - n mean(dn n)) / sd(x)
#pragma once
#include "sizes.h"
#include "vectors.h"

namespace {
// n, and 1 / sd, of x [LANES][128], whose rows are `width` apart, as those of n are `n_width`.
template <class Number>
INLINE void normalise(const float* x, Number* n, float* scale, long width = D, long n_width = D) {
  alignas(64) float mean[LANES];
  Vec parts[LANES];
#pragma GCC unroll 16
  for (int r = 0; r < LANES; r++) parts[r] = folded(Row(x + r * width));
  store(mean, sums_of_lanes(parts) / D);
#pragma GCC unroll 16
  for (int r = 0; r < LANES; r++) {
    Row centred = Row(x + r * width) - mean[r];
    parts[r] = folded(centred * centred);
  }
  Vec variance = sums_of_lanes(parts) / D;
  store(scale, 1.f / square_root(variance + 1e-5f));
  for (int r = 0; r < LANES; r++) store(n + r * n_width, scale[r] * (Row(x + r * width) - mean[r]));
}

// dx, added to `gradient` [LANES][128].
template <class Number>
INLINE void normalise_back(const float* dn, const Number* n, const float* scale, float* gradient,
                           long n_width = D) {
  alignas(64) float mean[LANES], along[LANES];
  Vec parts[LANES];
#pragma GCC unroll 16
  for (int r = 0; r < LANES; r++) parts[r] = folded(Row(dn + r * D));
  store(mean, sums_of_lanes(parts) / D);
#pragma GCC unroll 16
  for (int r = 0; r < LANES; r++) parts[r] = folded(Row(dn + r * D) * Row(n + r * n_width));
  store(along, sums_of_lanes(parts) / D);
  for (int r = 0; r < LANES; r++) {
    Row dx = Row(dn + r * D) - mean[r] - along[r] * Row(n + r * n_width);
    store(gradient + r * D, Row(gradient + r * D) + scale[r] * dx);
  }
}
}  // namespace
