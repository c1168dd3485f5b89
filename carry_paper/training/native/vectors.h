// Vectors in AVX512 registers: arithmetic on 16 floats and on whole rows, sums and transposes of
// 16 vectors at a time.
#pragma once
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define INLINE inline __attribute__((always_inline))

namespace {
using bf16 = uint16_t;  // the upper half of a float

// GCC and Clang give it + - * / with vectors and scalars, and fuse a product with a sum.
using Vec = __m512;
constexpr int LANES = 16;

INLINE Vec load(const float* from) { return _mm512_loadu_ps(from); }
INLINE Vec load(const bf16* from) {
  return (Vec)(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)from)) << 16);
}
INLINE void store(float* to, Vec x) { _mm512_storeu_ps(to, x); }
INLINE void store(bf16* to, Vec x) {
  _mm256_storeu_si256((__m256i*)to, (__m256i)_mm512_cvtneps_pbh(x));
}

// exp(x) = 2^n 2^f with |f| <= 1/2, by the series of 2^f.
INLINE Vec exponential(Vec x) {
  x = _mm512_max_ps(x * 1.44269504f, _mm512_set1_ps(-120));
  Vec n = _mm512_roundscale_ps(x, 0);
  Vec f = x - n;
  Vec y = f * 1.5403530e-4f + 1.3333558e-3f;
  y = y * f + 9.6181291e-3f;
  y = y * f + 5.5504109e-2f;
  y = y * f + 2.4022651e-1f;
  y = y * f + 6.9314718e-1f;
  y = y * f + 1.f;
  return _mm512_scalef_ps(y, n);
}

// N vectors side by side: 16 N columns.
template <int N> struct Vecs {
  Vec v[N];

  INLINE Vecs(float x = 0) {
    for (Vec& part : v) part = Vec{} + x;
  }
  template <class Number> INLINE explicit Vecs(const Number* from) {
    for (int u = 0; u < N; u++) v[u] = load(from + LANES * u);
  }
  template <class Number> INLINE friend void store(Number* to, Vecs x) {
    for (int u = 0; u < N; u++) store(to + LANES * u, x.v[u]);
  }
  template <class Function> INLINE static Vecs by_vector(Function f) {
    Vecs x;
    for (int u = 0; u < N; u++) x.v[u] = f(u);
    return x;
  }
  INLINE friend Vecs operator+(Vecs a, Vecs b) {
    return by_vector([&](int u) { return a.v[u] + b.v[u]; });
  }
  INLINE friend Vecs operator-(Vecs a, Vecs b) {
    return by_vector([&](int u) { return a.v[u] - b.v[u]; });
  }
  INLINE friend Vecs operator*(Vecs a, Vecs b) {
    return by_vector([&](int u) { return a.v[u] * b.v[u]; });
  }
  INLINE friend Vecs operator/(Vecs a, Vecs b) {
    return by_vector([&](int u) { return a.v[u] / b.v[u]; });
  }
  INLINE friend Vecs max(Vecs a, Vecs b) {
    return by_vector([&](int u) { return _mm512_max_ps(a.v[u], b.v[u]); });
  }
  // Columns whose bit is set, 32 to a word of `bits`; zero elsewhere.
  INLINE friend Vecs where(const uint32_t* bits, Vecs x) {
    return by_vector([&](int u) {
      return _mm512_maskz_mov_ps(bits[u / 2] >> (LANES * (u % 2)), x.v[u]);
    });
  }
};
using Row = Vecs<8>;    // 128 columns: a row of the residual stream
using Block = Vecs<4>;  // 64 columns: a head, a product's unit, or a number for each sum of a tile

// A vector whose lanes add up to the sum of the row.
INLINE Vec folded(Row x) {
  return ((x.v[0] + x.v[1]) + (x.v[2] + x.v[3])) + ((x.v[4] + x.v[5]) + (x.v[6] + x.v[7]));
}
INLINE float sum(Row x) { return _mm512_reduce_add_ps(folded(x)); }

// Lane i is the sum of v[i]'s lanes.
INLINE Vec sums_of_16(const Vec (&v)[16]) {
  Vec halves[8], quarters[4], lanes[2];
  for (int i = 0; i < 8; i++) {
    Vec even = v[2 * i], odd = v[2 * i + 1];
    halves[i] = _mm512_unpacklo_ps(even, odd) + _mm512_unpackhi_ps(even, odd);
  }
  for (int i = 0; i < 4; i++) {
    __m512d even = (__m512d)halves[2 * i], odd = (__m512d)halves[2 * i + 1];
    quarters[i] = (Vec)_mm512_unpacklo_pd(even, odd) + (Vec)_mm512_unpackhi_pd(even, odd);
  }
  for (int i = 0; i < 2; i++) {
    Vec even = quarters[2 * i], odd = quarters[2 * i + 1];
    lanes[i] = _mm512_shuffle_f32x4(even, odd, 0x88) + _mm512_shuffle_f32x4(even, odd, 0xDD);
  }
  return _mm512_shuffle_f32x4(lanes[0], lanes[1], 0x88) +
         _mm512_shuffle_f32x4(lanes[0], lanes[1], 0xDD);
}

// v[i][j] becomes v[j][i].
INLINE void transpose_16(Vec (&v)[16]) {
  Vec twos[16], fours[16];
  for (int i = 0; i < 16; i += 2) {
    twos[i] = _mm512_unpacklo_ps(v[i], v[i + 1]);
    twos[i + 1] = _mm512_unpackhi_ps(v[i], v[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    for (int k = 0; k < 2; k++) {
      __m512d upper = (__m512d)twos[i + k], lower = (__m512d)twos[i + k + 2];
      fours[i + 2 * k] = (Vec)_mm512_unpacklo_pd(upper, lower);
      fours[i + 2 * k + 1] = (Vec)_mm512_unpackhi_pd(upper, lower);
    }
  }
  // Quarter q of fours[4 r + k] is column 4 q + k of rows 4 r to 4 r + 3.
  for (int k = 0; k < 4; k++) {
    Vec even_top = _mm512_shuffle_f32x4(fours[k], fours[4 + k], 0x88);
    Vec odd_top = _mm512_shuffle_f32x4(fours[k], fours[4 + k], 0xDD);
    Vec even_bottom = _mm512_shuffle_f32x4(fours[8 + k], fours[12 + k], 0x88);
    Vec odd_bottom = _mm512_shuffle_f32x4(fours[8 + k], fours[12 + k], 0xDD);
    v[k] = _mm512_shuffle_f32x4(even_top, even_bottom, 0x88);
    v[4 + k] = _mm512_shuffle_f32x4(odd_top, odd_bottom, 0x88);
    v[8 + k] = _mm512_shuffle_f32x4(even_top, even_bottom, 0xDD);
    v[12 + k] = _mm512_shuffle_f32x4(odd_top, odd_bottom, 0xDD);
  }
}

// Rotary embedding of 64 columns, x cos + (-x1, x0) sin, whose `sine` carries the signs; its
// transpose, which gradients take, has `sign` -1.
INLINE Block rotated(Block x, const float* cosine, const float* sine, float sign = 1) {
  Block swapped = Block::by_vector([&](int u) { return _mm512_permute_ps(x.v[u], 0xB1); });
  Block straight = x * Block(cosine);
  Block crossed = sign * swapped * Block(sine);
  return straight + crossed;
}
}  // namespace
