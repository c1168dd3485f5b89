// Matrix products of bf16 that add up in float: in matrix registers (AMX) where the processor has
// them, else in vector registers.
//
// The right factor B is interleaved: a word holds a column's bf16 of two successive rows. Weights
// are packed so in blocks of 128 columns, [columns / 128][K / 2][128] words.
#pragma once
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>
#include "sizes.h"
#include "vectors.h"

namespace {
INLINE __m512bh words(const void* from) { return (__m512bh)_mm512_loadu_si512(from); }

// A vector whose lanes add up to the product of two heads' columns.
INLINE Vec folded_product(const bf16* a, const bf16* b) {
  Vec first = _mm512_dpbf16_ps(Vec{}, words(a), words(b));
  return _mm512_dpbf16_ps(first, words(a + 32), words(b + 32));
}

// ---- interleaving ----
// The lower (half 0) or upper (half 1) 16 of 32 columns, each with the row below.
INLINE __m512i zip(__m512i even, __m512i odd, int half) {
  static const __m512i order = [] {
    uint16_t x[32];
    for (int i = 0; i < 16; i++) x[2 * i] = i, x[2 * i + 1] = 32 + i;
    return _mm512_loadu_si512(x);
  }();
  __m512i columns = _mm512_add_epi16(order, _mm512_set1_epi16(16 * half));
  return _mm512_permutex2var_epi16(even, columns, odd);
}
// 128 columns of `rows` rows, `width` apart, two by two: [rows / 2][128] words.
INLINE void interleave(const bf16* A, int rows, long width, uint32_t* __restrict to) {
  for (int r = 0; r < rows; r += 2, A += 2 * width) {
    for (int c = 0; c < D; c += 32, to += 32) {
      __m512i even = _mm512_loadu_si512(A + c), odd = _mm512_loadu_si512(A + width + c);
      _mm512_storeu_si512(to, zip(even, odd, 0));
      _mm512_storeu_si512(to + 16, zip(even, odd, 1));
    }
  }
}

// ---- matrix registers ----
#ifdef __AMX_BF16__
// The system lends these registers to a process that asks for them.
const bool has_matrix_registers = syscall(SYS_arch_prctl, 0x1023, 18) == 0;

// Eight registers of 16 rows of 64 bytes; afterwards as they were, which oneDNN counts on.
struct MatrixRegisters {
  alignas(64) uint8_t before[64], now[64] = {1};
  MatrixRegisters() {
    for (int i = 0; i < 8; i++) now[16 + 2 * i] = 64, now[48 + i] = 16;
    if (has_matrix_registers) _tile_storeconfig(before), _tile_loadconfig(now);
  }
  ~MatrixRegisters() {
    if (has_matrix_registers) before[0] ? _tile_loadconfig(before) : _tile_release();
  }
};

// Registers 0 to 3 are C's four quarters; DO takes a register, its quarter's row and column.
#define QUARTERS(DO) { DO(0, 0, 0) DO(1, 0, 1) DO(2, 1, 0) DO(3, 1, 1) }
#define ZERO(t, i, j) _tile_zero(t);
#define LOAD(t, i, j) _tile_loadd(t, C + 16 * i * row + 16 * j, 4 * row);
#define STORE(t, i, j) _tile_stored(t, C + 16 * i * row + 16 * j, 4 * row);

// 32 rows, `row` floats apart, and 64 columns of C = A B, or of C += A B where `add` says so.
INLINE void matrix_product(float* C, long row, bool add, const bf16* A, long width,
                           const uint32_t* B, int K) {
  asm volatile("" ::: "memory");  // GCC does not know that _tile_loadd reads memory
  for (int c = 0; c < 64; c += 32, C += 32, B += 32) {
    if (add) QUARTERS(LOAD) else QUARTERS(ZERO)
    for (int k = 0; k < K; k += 32) {
      _tile_loadd(4, A + k, 2 * width);
      _tile_loadd(6, B + k / 2 * D, 4 * D);
      _tile_loadd(7, B + k / 2 * D + 16, 4 * D);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(5, A + 16 * width + k, 2 * width);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    QUARTERS(STORE)
  }
}

// 128 columns of a tile of rows become the rows of `to`. A riffle of the interleaved words turns
// the bits of their address, five of a pair of rows and seven of a column, by one; so five riffles
// exchange row and column.
INLINE void transpose_tile(const bf16* A, long width, uint32_t* to) {
  constexpr int half = TILE / 4 * D;
  alignas(64) uint32_t other[2 * half], *from = other;
  interleave(A, TILE, width, from);
  for (int pass = 0; pass < 5; pass++, std::swap(from, to))
#pragma GCC ivdep
    for (int i = 0; i < half; i++) to[2 * i] = from[i], to[2 * i + 1] = from[i + half];
}
#else
constexpr bool has_matrix_registers = false;
struct MatrixRegisters {
  MatrixRegisters() {}
};
INLINE void matrix_product(float*, long, bool, const bf16*, long, const uint32_t*, int) {}
INLINE void transpose_tile(const bf16*, long, uint32_t*) {}
#endif

// ---- vector registers ----
// C += A B for four rows and 64 columns of C, in registers. A's words, of two bf16, are `row` apart
// from row to row and `step` apart along a row.
INLINE void vector_product(Block (&C)[4], const uint32_t* A, long row, long step,
                           const uint32_t* B, int words_of_a_row) {
  asm volatile("" ::: "memory");  // else GCC fills registers with what comes after the product
  const uint32_t* end = B + (long)D * words_of_a_row;
  for (; B != end; B += D, A += step) {
    asm("" : "+r"(A));  // else GCC keeps four addresses, and runs out of registers
    __m512bh b[4];
    for (int j = 0; j < 4; j++) b[j] = words(B + LANES * j);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
      __m512bh a = (__m512bh)_mm512_set1_epi32(A[i * row]);
      C[i] = Block::by_vector([&](int j) { return _mm512_dpbf16_ps(C[i].v[j], b[j], a); });
    }
  }
}

// ---- products of any size ----
// A B for `rows` rows of A, `width` apart, of which the first K columns count, and B packed. Each
// row's 64 columns go to f(row, first column, columns).
template <class Function>
INLINE void product(const bf16* A, int rows, int width, int K, const uint32_t* B, int columns,
                    Function f) {
  alignas(64) float C[32][64];
  for (int c = 0; c < columns; c += 64) {
    const uint32_t* b = B + c / D * (D * K / 2) + c % D;
    if (has_matrix_registers) {
      for (int r = 0; r < rows; r += 32) {
        matrix_product(C[0], 64, false, A + r * width, width, b, K);
        for (int i = 0; i < 32; i++) f(r + i, c, Block(C[i]));
      }
      continue;
    }
    for (int r = 0; r < rows; r += 4) {
      Block four_rows[4];
      vector_product(four_rows, (const uint32_t*)(A + r * width), width / 2, 1, b, K / 2);
#pragma GCC unroll 4
      for (int i = 0; i < 4; i++) f(r + i, c, four_rows[i]);
    }
  }
}

// A linear map W x + b, whose sizes are multiples of 128, and its gradients.
struct Linear {
  int in, out;
  uint32_t* forward;   // W packed for W x, in blocks of 128 outputs
  uint32_t* backward;  // W packed for W' dy, in blocks of 128 inputs
  float* bias;
  float* d_weight;  // [out][in]
  float* d_bias;

  // W x + b of a tile, the first `outputs` of it, to f(row, first column, 64 columns).
  template <class Function> INLINE void apply(const bf16* x, int outputs, Function f) const {
    product(x, TILE, in, in, forward, outputs,
            [&](int row, int column, Block y) { f(row, column, y + Block(bias + column)); });
  }

  // From the gradients dy [rows][out] of the first `outputs`, for a tile or two: adds to d_weight
  // and d_bias, with the inputs x [rows][in]; W' dy to f(row, first column, 64 columns).
  template <class Function>
  INLINE void back(const bf16* dy, const bf16* x, int rows, int outputs, Function f) const {
    alignas(64) uint32_t dy_words[TILE * D], x_words[MOST_NEURONS / D][TILE * D];
    for (int i = 0; i < in; i += D) interleave(x + i, rows, in, x_words[i / D]);
    for (int o = 0; o < outputs; o += D) {
      if (has_matrix_registers)
        for (int tile = 0; tile < rows; tile += TILE) {
          transpose_tile(dy + tile * out + o, out, dy_words);
          add_weight_gradients_of_tile(o, tile, dy_words, x_words);
        }
      interleave(dy + o, rows, out, dy_words);
      if (!has_matrix_registers) add_weight_gradients(o, rows, dy_words, x_words);
      add_bias_gradients(o, rows, dy_words);
    }
    product(dy, rows, out, outputs, backward, in, f);
  }

 private:
  INLINE void add_weight_gradients_of_tile(int o, int tile, const uint32_t* dy_transposed,
                                           const uint32_t (*x_words)[TILE * D]) const {
    for (int i = 0; i < in; i += D)
      for (int c = 0; c < D; c += 64)
        for (int r = 0; r < D; r += 32)
          matrix_product(d_weight + (o + r) * in + i + c, in, true,
                         (const bf16*)dy_transposed + r * TILE, TILE,
                         x_words[i / D] + tile / 2 * D + c, TILE);
  }
  INLINE void add_weight_gradients(int o, int rows, const uint32_t* dy_words,
                                   const uint32_t (*x_words)[TILE * D]) const {
    for (int i = 0; i < in; i += D)
      for (int c = 0; c < D; c += 64)
        for (int r = 0; r < D; r += 4) {
          float* to = d_weight + (o + r) * in + i + c;
          Block sums[4];  // from zero: the product need not wait for memory
          vector_product(sums, dy_words + r, 1, D, x_words[i / D] + c, rows / 2);
#pragma GCC unroll 4
          for (int row = 0; row < 4; row++) store(to + row * in, Block(to + row * in) + sums[row]);
        }
  }
  INLINE void add_bias_gradients(int o, int rows, const uint32_t* dy_words) const {
    const __m512bh ones = (__m512bh)_mm512_set1_epi16(0x3F80);
    Row sums(d_bias + o);
    for (int r = 0; r < rows / 2; r++)
      sums = Row::by_vector([&](int u) {
        return _mm512_dpbf16_ps(sums.v[u], words(dy_words + r * D + LANES * u), ones);
      });
    store(d_bias + o, sums);
  }
};
}  // namespace
