// Vectors in registers: arithmetic on a register's floats, `LANES` of them, and on whole rows; sums
// and transposes of as many vectors as a vector has lanes.
//
// They are the vector types of GCC and Clang, as wide as the processor's registers, or of the width
// that VECTOR_BITS names: vectors wider than a register are computed in parts.
#pragma once
#include <stdint.h>
#include <string.h>
#include <utility>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#define INLINE inline __attribute__((always_inline))

#ifndef VECTOR_BITS
#if defined __AVX512F__
#define VECTOR_BITS 512
#elif defined __AVX2__
#define VECTOR_BITS 256
#else
#define VECTOR_BITS 128
#endif
#endif

namespace {
constexpr int LANES = VECTOR_BITS / 32;

// The compiler gives them + - * / with vectors and scalars, and fuses a product with a sum.
typedef float Vec __attribute__((vector_size(4 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));
typedef float VecInMemory __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

INLINE Vec load(const float* from) { return *(const VecInMemory*)from; }
INLINE void store(float* to, Vec x) { *(VecInMemory*)to = x; }

typedef uint16_t bf16;  // the upper half of a float
typedef bf16 HalvesInMemory __attribute__((vector_size(2 * LANES), aligned(2), may_alias));

INLINE Vec load(const bf16* from) {
  return (Vec)(__builtin_convertvector(*(const HalvesInMemory*)from, Ints) << 16);
}
INLINE void store(bf16* to, Vec x) {  // rounded to the nearest, halfway to the even one
#if VECTOR_BITS == 512 && defined __AVX512BF16__
  _mm256_storeu_si256((__m256i*)to, (__m256i)_mm512_cvtneps_pbh(x));
#else
  const Ints bits = (Ints)x, rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
  const Ints not_a_number = Ints{} + 0x7FC0;
  *(HalvesInMemory*)to = __builtin_convertvector(x == x ? rounded : not_a_number, HalvesInMemory);
#endif
}

// The first `lanes` alone; zeros in the others.
template <class Number> INLINE Vec load(const Number* from, int lanes) {
  if (lanes == LANES) return load(from);
  Number all[LANES] = {};
  memcpy(all, from, lanes * sizeof *from);
  return load(all);
}
template <class Number> INLINE void store(Number* to, Vec x, int lanes) {
  if (lanes == LANES) return store(to, x);
  Number all[LANES];
  store(all, x);
  memcpy(to, all, lanes * sizeof *to);
}

// All lanes the same. (A compiler drops the zero of x - 0, but not that of x + 0: x may be -0.)
INLINE Vec broadcast(float x) { return x - Vec{}; }
INLINE Vec max(Vec a, Vec b) { return a > b ? a : b; }
INLINE Vec square_root(Vec x) {
  for (int lane = 0; lane < LANES; lane++) x[lane] = __builtin_sqrtf(x[lane]);
  return x;
}
INLINE Vec nearest_whole(Vec x) {  // of numbers below 2^22
  constexpr float no_fraction = 3 << 22;  // next to it floats are a whole apart
  return (x + no_fraction) - no_fraction;
}
INLINE Vec times_power_of_2(Vec x, Vec n) {  // n from -126 to 127
  return x * (Vec)((__builtin_convertvector(n, Ints) + 127) << 23);
}

// exp(x) = 2^n 2^f with |f| <= 1/2, by the series of 2^f. If x is NaN, `max` returns its second
// argument, and so NaN.
INLINE Vec exponential(Vec x) {
  x = max(broadcast(-120), x * 1.44269504f);
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

// ---- lanes in another order ----
// Lane i is that of number `Choice::lane(i)` among the lanes of a and, after them, of b.
template <class Choice, int... I>
INLINE Vec shuffled(Vec a, Vec b, std::integer_sequence<int, I...>) {
#ifdef __clang__
  return __builtin_shufflevector(a, b, Choice::lane(I)...);
#else
  return __builtin_shuffle(a, b, Ints{Choice::lane(I)...});
#endif
}
template <class Choice> INLINE Vec shuffled(Vec a, Vec b) {
  return shuffled<Choice>(a, b, std::make_integer_sequence<int, LANES>());
}

constexpr int QUAD = 4;  // lanes that all processors shuffle at once

// Every other group of N lanes, the even or the odd ones (PART 0 or 1): those of a, then those of
// b. Groups of less than a quad stay in their quad.
template <int N, int PART> struct EveryOther {
  static constexpr int lane(int i) {
    constexpr int half = (N < QUAD ? QUAD : LANES) / 2;  // from here on they are b's
    const int start = N < QUAD ? i / QUAD * QUAD : 0, place = i - start;
    const int group = place % half / N;
    return place / half * LANES + start + (2 * group + PART) * N + place % N;
  }
};
// The lower or upper half of each quad of a and b, lane by lane in turns.
template <int PART> struct Zipped {
  static constexpr int lane(int i) {
    return i % 2 * LANES + i / QUAD * QUAD + i % QUAD / 2 + 2 * PART;
  }
};
// Groups of N lanes trade places: a's odd groups with the even ones of b; PART 0 is the new a.
template <int N, int PART> struct Traded {
  static constexpr int lane(int i) {
    const bool is_odd = i / N % 2;
    return PART == 0 ? (is_odd ? LANES + i - N : i) : (is_odd ? LANES + i : i + N);
  }
};
struct SwappedPairs {
  static constexpr int lane(int i) { return i ^ 1; }
};
// The upper half of the first N lanes, where the lower one was.
template <int N> struct UpperHalf {
  static constexpr int lane(int i) { return i < N / 2 ? i + N / 2 : i; }
};

// Each pair of neighbouring lanes, the other way round.
INLINE Vec swapped_pairs(Vec x) { return shuffled<SwappedPairs>(x, x); }

// Sums of neighbouring groups of N lanes, a's before b's.
template <int N> INLINE Vec sums_of_neighbours(Vec a, Vec b) {
  return shuffled<EveryOther<N, 0>>(a, b) + shuffled<EveryOther<N, 1>>(a, b);
}
// Lane i is the sum of v[i]'s lanes: first those of each quad, then the quads' sums.
INLINE Vec sums_of_lanes(const Vec (&v)[LANES]) {
  // The distance of the lanes that are added first. Code for AVX2 and AVX512 has always differed in
  // it, so sums keep their bits.
  constexpr int FIRST = LANES == 8 ? 1 : 2;
  Vec sums[LANES / 2];
  for (int i = 0; i < LANES / 2; i++) sums[i] = sums_of_neighbours<FIRST>(v[2 * i], v[2 * i + 1]);
  for (int i = 0; i < LANES / 4; i++) sums[i] = sums_of_neighbours<1>(sums[2 * i], sums[2 * i + 1]);
  for (int count = LANES / 8; count > 0; count /= 2)
    for (int i = 0; i < count; i++)
      sums[i] = sums_of_neighbours<QUAD>(sums[2 * i], sums[2 * i + 1]);
  return sums[0];
}

template <int N> INLINE void trade(Vec (&v)[LANES]) {
  for (int i = 0; i < LANES; i++) {
    if (i / N % 2) continue;
    const Vec a = v[i], b = v[i + N];
    v[i] = shuffled<Traded<N, 0>>(a, b);
    v[i + N] = shuffled<Traded<N, 1>>(a, b);
  }
}
// v[i][j] becomes v[j][i].
INLINE void transpose(Vec (&v)[LANES]) {
  for (int i = 0; i < LANES; i += 4) {  // within quads, four rows at a time
    Vec zipped[4];
    for (int k = 0; k < 2; k++) {
      zipped[2 * k] = shuffled<Zipped<0>>(v[i + 2 * k], v[i + 2 * k + 1]);
      zipped[2 * k + 1] = shuffled<Zipped<1>>(v[i + 2 * k], v[i + 2 * k + 1]);
    }
    for (int k = 0; k < 2; k++) {
      v[i + 2 * k] = shuffled<EveryOther<2, 0>>(zipped[k], zipped[k + 2]);
      v[i + 2 * k + 1] = shuffled<EveryOther<2, 1>>(zipped[k], zipped[k + 2]);
    }
  }
  if constexpr (LANES > 4) trade<4>(v);
  if constexpr (LANES > 8) trade<8>(v);
}

// ---- bits ----
// A bit for each lane above zero, or NaN.
INLINE uint32_t positive(Vec x) {
#if VECTOR_BITS == 512 && defined __AVX512F__
  return _mm512_cmp_ps_mask(x, Vec{}, _CMP_NLE_UQ);
#elif VECTOR_BITS == 256 && defined __AVX2__
  return _mm256_movemask_ps(_mm256_cmp_ps(x, Vec{}, _CMP_NLE_UQ));
#else
  uint32_t bits = 0;
  for (int lane = 0; lane < LANES; lane++) bits |= (uint32_t)!(x[lane] <= 0) << lane;
  return bits;
#endif
}
// Lanes whose bit is set; zero elsewhere.
INLINE Vec where(uint32_t bits, Vec x) {
#if VECTOR_BITS == 512 && defined __AVX512F__
  return _mm512_maskz_mov_ps(bits, x);
#else
  Ints of_lane;
  for (int lane = 0; lane < LANES; lane++) of_lane[lane] = 1 << lane;
  Ints all = Ints{} + (int32_t)bits;
  return (Vec)((Ints)x & ((all & of_lane) == of_lane));
#endif
}

// ---- vectors side by side: N LANES columns ----
template <int N> struct Vecs {
  Vec v[N];

  INLINE Vecs(float x = 0) {
    for (Vec& part : v) part = broadcast(x);
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
  // A bit for each column above zero, or NaN.
  INLINE friend uint32_t positive(Vecs x) {
    uint32_t bits = 0;
    for (int u = 0; u < N; u++) bits |= positive(x.v[u]) << LANES * u;
    return bits;
  }
  // Columns whose bit is set, from bit `first` on, 32 to a word; zero elsewhere.
  INLINE friend Vecs where(const uint32_t* bits, int first, Vecs x) {
    return by_vector([&](int u) {
      const int column = first + LANES * u;
      return where(bits[column / 32] >> column % 32, x.v[u]);
    });
  }
};
using Row = Vecs<128 / LANES>;   // 128 columns: a row of the residual stream
using Block = Vecs<64 / LANES>;  // 64 columns

// The sum of N vectors, a power of 2.
template <int N> INLINE Vec sum_of(const Vec* v) {
  if constexpr (N == 1) return v[0];
  else return sum_of<N / 2>(v) + sum_of<N / 2>(v + N / 2);
}
// A vector whose lanes add up to the sum of all columns.
template <int N> INLINE Vec folded(Vecs<N> x) { return sum_of<N>(x.v); }

template <int N> INLINE Vec with_upper_half_added(Vec x) {
  x += shuffled<UpperHalf<N>>(x, x);
  if constexpr (N > 2) return with_upper_half_added<N / 2>(x);
  else return x;
}
// The largest of all columns.
template <int N> INLINE float largest(Vecs<N> x) {
  float most = x.v[0][0];
  for (int u = 0; u < N; u++)
    for (int lane = 0; lane < LANES; lane++) most = x.v[u][lane] > most ? x.v[u][lane] : most;
  return most;
}
// The sum of all columns.
template <int N> INLINE float sum(Vecs<N> x) { return with_upper_half_added<LANES>(folded(x))[0]; }

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
