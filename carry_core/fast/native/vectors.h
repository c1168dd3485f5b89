// Vectors in registers: arithmetic on a register's floats, `LANES` of them, and on whole rows; sums
// and transposes of as many vectors as a vector has lanes. Registers are those of AVX512 where the
// compiler may use them, else those of AVX2.
#pragma once
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define INLINE inline __attribute__((always_inline))

namespace {
#ifdef __AVX512F__
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
INLINE Vec max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
INLINE Vec square_root(Vec x) { return _mm512_sqrt_ps(x); }
INLINE Vec nearest_whole(Vec x) { return _mm512_roundscale_ps(x, 0); }
INLINE Vec times_power_of_2(Vec x, Vec n) { return _mm512_scalef_ps(x, n); }
// Each pair of neighbouring lanes, the other way round.
INLINE Vec swapped_pairs(Vec x) { return _mm512_permute_ps(x, 0xB1); }
#else
using Vec = __m256;
constexpr int LANES = 8;

INLINE Vec load(const float* from) { return _mm256_loadu_ps(from); }
INLINE void store(float* to, Vec x) { _mm256_storeu_ps(to, x); }
INLINE Vec max(Vec a, Vec b) { return _mm256_max_ps(a, b); }
INLINE Vec square_root(Vec x) { return _mm256_sqrt_ps(x); }
INLINE Vec nearest_whole(Vec x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT); }
INLINE Vec times_power_of_2(Vec x, Vec n) {  // n from -126 to 127
  __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return x * (Vec)_mm256_slli_epi32(exponent, 23);
}
INLINE Vec swapped_pairs(Vec x) { return _mm256_permute_ps(x, 0xB1); }
// A bit for each lane above zero.
INLINE uint32_t positive(Vec x) {
  return _mm256_movemask_ps(_mm256_cmp_ps(x, Vec{}, _CMP_GT_OQ));
}
#endif

// exp(x) = 2^n 2^f with |f| <= 1/2, by the series of 2^f. If x is NaN, `max` returns its second
// argument, and so NaN.
INLINE Vec exponential(Vec x) {
  x = max(Vec{} - 120.f, x * 1.44269504f);
  Vec n = nearest_whole(x);
  Vec f = x - n;
  Vec y = f * 1.5403530e-4f + 1.3333558e-3f;
  y = y * f + 9.6181291e-3f;
  y = y * f + 5.5504109e-2f;
  y = y * f + 2.4022651e-1f;
  y = y * f + 6.9314718e-1f;
  y = y * f + 1.f;
  return times_power_of_2(y, n);
}

// N vectors side by side: N LANES columns.
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
    return by_vector([&](int u) { return max(a.v[u], b.v[u]); });
  }
#ifdef __AVX512F__
  // Columns whose bit is set, 32 to a word of `bits`; zero elsewhere.
  INLINE friend Vecs where(const uint32_t* bits, Vecs x) {
    return by_vector([&](int u) {
      return _mm512_maskz_mov_ps(bits[u / 2] >> (LANES * (u % 2)), x.v[u]);
    });
  }
#endif
};
using Row = Vecs<128 / LANES>;   // 128 columns: a row of the residual stream
using Block = Vecs<64 / LANES>;  // 64 columns: a head, or a product's unit

// The sum of N vectors, a power of 2.
template <int N> INLINE Vec sum_of(const Vec* v) {
  if constexpr (N == 1) return v[0];
  else return sum_of<N / 2>(v) + sum_of<N / 2>(v + N / 2);
}
// A vector whose lanes add up to the sum of all columns.
template <int N> INLINE Vec folded(Vecs<N> x) { return sum_of<N>(x.v); }

#ifdef __AVX512F__
INLINE float sum(Row x) { return _mm512_reduce_add_ps(folded(x)); }

// Lane i is the sum of v[i]'s lanes.
INLINE Vec sums_of_lanes(const Vec (&v)[LANES]) {
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

#else
INLINE Vec sums_of_lanes(const Vec (&v)[LANES]) {
  Vec pairs[4], fours[2];
  for (int i = 0; i < 4; i++) pairs[i] = _mm256_hadd_ps(v[2 * i], v[2 * i + 1]);
  for (int i = 0; i < 2; i++) fours[i] = _mm256_hadd_ps(pairs[2 * i], pairs[2 * i + 1]);
  return _mm256_permute2f128_ps(fours[0], fours[1], 0x20) +
         _mm256_permute2f128_ps(fours[0], fours[1], 0x31);
}
#endif

// Rotary embedding of some columns, x cos + (-x1, x0) sin, whose `sine` carries the signs; its
// transpose, which gradients take, has `sign` -1.
template <int N>
INLINE Vecs<N> rotated(Vecs<N> x, const float* cosine, const float* sine, float sign = 1) {
  Vecs<N> swapped = Vecs<N>::by_vector([&](int u) { return swapped_pairs(x.v[u]); });
  Vecs<N> straight = x * Vecs<N>(cosine);
  Vecs<N> crossed = sign * swapped * Vecs<N>(sine);
  return straight + crossed;
}
}  // namespace
