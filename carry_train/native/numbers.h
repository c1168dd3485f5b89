// The format of the numbers that matrix products take: float or, with -D BF16, bf16. Products add
// up in float in both. Activations and packed weights are stored in the format.
//
// A word is what a lane multiplies at once: a float, or two bf16, those of a column in two
// successive rows.
#pragma once
#include "vectors.h"

namespace {
#ifdef BF16
typedef bf16 Number;
typedef uint32_t Word;
typedef Ints Words;
const Word ONES = 0x3F803F80;  // 1 in both halves

INLINE Words words(const Word* from) { return (Words)load((const float*)from); }
INLINE void store(Word* to, Words x) { store((float*)to, (Vec)x); }
INLINE Words broadcast(Word word) { return Words{} + (int32_t)word; }

// The words of LANES columns from two rows, `width` apart.
INLINE Words words_of_rows(const Number* A, long width) {
  return __builtin_convertvector(*(const HalvesInMemory*)A, Ints) | (Ints)load(A + width);
}
// sum + a b, lane by lane: the products of a word's halves one after the other.
INLINE Vec multiply_add(Vec sum, Words a, Words b) {
#if VECTOR_BITS == 512 && defined __AVX512BF16__
  return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
#else
  constexpr int upper = 0x7FFF0000 | INT32_MIN;
  sum += (Vec)(a & upper) * (Vec)(b & upper);
  return sum + (Vec)(a << 16) * (Vec)(b << 16);
#endif
}
#else
typedef float Number, Word;
typedef Vec Words;
const Word ONES = 1;

INLINE Words words(const Word* from) { return load(from); }
INLINE Words words_of_rows(const Number* A, long) { return load(A); }
INLINE Vec multiply_add(Vec sum, Words a, Words b) { return sum + a * b; }
#endif
constexpr int NUMBERS = sizeof(Word) / sizeof(Number);  // of a word

// The first words of some numbers; zeros beyond `lanes` of them.
INLINE Words words(const Number* from, int lanes) { return (Words)load((const float*)from, lanes); }

// The distance between rows of activations. If it were a power of two, a product's rows would
// compete for a few sets of the L1 cache.
constexpr int padded(int columns) { return columns + 64 / sizeof(Number); }

// The words of some columns from `rows` rows of A, `width` apart, into rows `to_row` apart.
INLINE void interleave(const Number* A, int rows, long width, int columns, Word* __restrict to,
                       long to_row) {
  for (int r = 0; r < rows; r += NUMBERS, A += NUMBERS * width, to += to_row)
    for (int c = 0; c < columns; c += LANES) store(to + c, words_of_rows(A + c, width));
}
}  // namespace
