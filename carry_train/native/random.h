// Dropout's draws: SFC64 in eight streams, each as numpy has it; 32 draws of 16 bits at a time.
// Vectors of any width draw the same.
#pragma once
#include "sizes.h"
#include "vectors.h"

namespace {
class Random {
  typedef uint64_t Streams __attribute__((vector_size(4 * LANES)));
  typedef uint16_t Draws __attribute__((vector_size(4 * LANES)));
  static constexpr int STREAMS = 8, VECTORS = 2 * STREAMS / LANES;
  Streams a[VECTORS], b[VECTORS], c[VECTORS], counter[VECTORS];
  Draws threshold;

 public:
  static constexpr int STATE = 4 * STREAMS;  // words a of all streams, then b, c and the counter

  Random(const uint64_t* state, int threshold) : threshold(Draws{} + (uint16_t)threshold) {
    memcpy(a, state, sizeof a);
    memcpy(b, state + STREAMS, sizeof b);
    memcpy(c, state + 2 * STREAMS, sizeof c);
    memcpy(counter, state + 3 * STREAMS, sizeof counter);
  }
  void save(uint64_t* state) const {
    memcpy(state, a, sizeof a);
    memcpy(state + STREAMS, b, sizeof b);
    memcpy(state + 2 * STREAMS, c, sizeof c);
    memcpy(state + 3 * STREAMS, counter, sizeof counter);
  }

  // 32 bits, each 0 with probability threshold / 2^16.
  INLINE uint32_t bits() {
    Draws draws[VECTORS];
    for (int v = 0; v < VECTORS; v++) {
      Streams out = a[v] + b[v] + counter[v];
      counter[v] += 1;
      a[v] = b[v] ^ (b[v] >> 11);
      b[v] = c[v] + (c[v] << 3);
      c[v] = ((c[v] << 24) | (c[v] >> 40)) + out;
      draws[v] = (Draws)out;
    }
#if VECTOR_BITS == 512 && defined __AVX512BW__
    return _mm512_cmpge_epu16_mask((__m512i)draws[0], (__m512i)threshold);
#elif VECTOR_BITS == 256 && defined __AVX2__
    __m256i kept[2];
    for (int v = 0; v < 2; v++) kept[v] = (__m256i)(draws[v] >= threshold);
    __m256i bytes = _mm256_packs_epi16(kept[0], kept[1]);  // of each half of the two, in turns
    return _mm256_movemask_epi8(_mm256_permute4x64_epi64(bytes, 0xD8));
#else
    uint32_t bits = 0;
    for (int i = 0; i < 32; i++)
      bits |= (uint32_t)(draws[i / (2 * LANES)][i % (2 * LANES)] >= threshold[0]) << i;
    return bits;
#endif
  }
  // For the first 32 sums of a tile and all keys, then for its other sums.
  void draw_keys(uint32_t (*mask)[TILE / 32], int keys) {
    for (int half = 0; half < TILE / 32; half++)
      for (int j = 0; j < keys; j++) mask[j][half] = bits();
  }
  // For 64 columns of all sums of a tile, then for the next 64.
  template <int WORDS> void draw_columns(uint32_t (*mask)[WORDS], int columns) {
    for (int word = 0; word < columns / 32; word += 2)
      for (int b = 0; b < TILE; b++)
        for (int i = 0; i < 2; i++) mask[b][word + i] = bits();
  }
};
}  // namespace
