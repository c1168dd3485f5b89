// Products of bf16 in matrix registers (AMX), where the processor has them.
#pragma once
#include "numbers.h"
#include "sizes.h"
#if defined BF16 && defined __AMX_BF16__ && VECTOR_BITS == 512
#include <sys/syscall.h>
#include <unistd.h>

namespace {
// Linux lets a process use these registers once it asks for them: ARCH_REQ_XCOMP_PERM for TILEDATA.
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

// 32 rows, `row` floats apart, and 64 columns of C = A B, or of C += A B where `add` says so. A's
// rows are `width` apart, and B's words are in panels of 64 columns.
INLINE void matrix_product(float* C, long row, bool add, const Number* A, long width,
                           const Word* B, int K) {
  asm volatile("" ::: "memory");  // GCC does not know that _tile_loadd reads memory
  for (int c = 0; c < 64; c += 32, C += 32, B += 32) {
    if (add) QUARTERS(LOAD) else QUARTERS(ZERO)
    for (int k = 0; k < K; k += 32) {
      _tile_loadd(4, A + k, 2 * width);
      _tile_loadd(6, B + k / 2 * 64, 4 * 64);
      _tile_loadd(7, B + k / 2 * 64 + 16, 4 * 64);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(5, A + 16 * width + k, 2 * width);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    QUARTERS(STORE)
  }
}

// 128 columns of a tile of rows, `width` apart, become the rows of `to`. A riffle of the
// interleaved words turns the bits of their address, five of a pair of rows and seven of a column,
// by one; so five riffles exchange row and column.
INLINE void transpose_tile(const Number* A, long width, Word* to) {
  constexpr int half = TILE / 4 * D;
  alignas(64) Word other[2 * half], *from = other;
  interleave(A, TILE, width, D, from, D);
  for (int pass = 0; pass < 5; pass++, std::swap(from, to))
#pragma GCC ivdep
    for (int i = 0; i < half; i++) to[2 * i] = from[i], to[2 * i + 1] = from[i + half];
}
}  // namespace
#else
namespace {
constexpr bool has_matrix_registers = false;
struct MatrixRegisters {
  MatrixRegisters() {}
};
INLINE void matrix_product(float*, long, bool, const Number*, long, const Word*, int) {}
INLINE void transpose_tile(const Number*, long, Word*) {}
}  // namespace
#endif
