// LayerNorm without its gain and shift, of 16 rows of the residual stream at a time.
//
//   n = (x - mean(x)) / sd(x)        dx = (dn - mean(dn) - n mean(dn n)) / sd(x)
#pragma once
#include "sizes.h"
#include "vectors.h"

namespace {
// n, and 1 / sd, of x [16][128].
template <class Number> INLINE void normalise_16(const float* x, Number* n, float* scale) {
  alignas(64) float mean[16];
  Vec parts[16];
#pragma GCC unroll 16
  for (int r = 0; r < 16; r++) parts[r] = folded(Row(x + r * D));
  store(mean, sums_of_16(parts) / D);
#pragma GCC unroll 16
  for (int r = 0; r < 16; r++) {
    Row centred = Row(x + r * D) - mean[r];
    parts[r] = folded(centred * centred);
  }
  Vec variance = sums_of_16(parts) / D;
  store(scale, Vec{} + 1.f / _mm512_sqrt_ps(variance + 1e-5f));
  for (int r = 0; r < 16; r++) store(n + r * D, scale[r] * (Row(x + r * D) - mean[r]));
}

// dx, added to `gradient` [16][128].
template <class Number>
INLINE void normalise_back_16(const float* dn, const Number* n, const float* scale,
                              float* gradient) {
  alignas(64) float mean[16], along[16];
  Vec parts[16];
#pragma GCC unroll 16
  for (int r = 0; r < 16; r++) parts[r] = folded(Row(dn + r * D));
  store(mean, sums_of_16(parts) / D);
#pragma GCC unroll 16
  for (int r = 0; r < 16; r++) parts[r] = folded(Row(dn + r * D) * Row(n + r * D));
  store(along, sums_of_16(parts) / D);
  for (int r = 0; r < 16; r++) {
    Row dx = Row(dn + r * D) - mean[r] - along[r] * Row(n + r * D);
    store(gradient + r * D, Row(gradient + r * D) + scale[r] * dx);
  }
}
}  // namespace
