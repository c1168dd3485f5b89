// A training step of the paper's transformer (App. A) on a CPU core: loss and gradients of all
// parameters, or logits. `fused.py` calls it.
//
// Products take float or bf16 (`numbers.h`) and add up in float; the residual stream, norms,
// softmax, loss and gradients of weights are float. Tiles of 64 sums go all the way forward and
// back, one after the other (`tile.h`), with weights that are folded and packed once a step
// (`folding.h`).
#include <sys/mman.h>
#include <new>
#include "tile.h"

namespace {
struct Workspace {
  Folded folded;
  Tile tile;

  Workspace(const Model& model, Random random)
      : folded(model), tile(model, folded, random) {}

  // Beyond the last of `count` sums, the tile has that one again. `pairs` is [position][count].
  void fill(const int* pairs, long count, long first, int valid) {
    for (int i = 0; i < tile.length; i++)
      for (int b = 0; b < TILE; b++)
        tile.pair[i][b] = pairs[i * count + first + (b < valid ? b : valid - 1)];
  }
};

// Memory in huge pages where the system lends them: activations lie so far apart that with small
// pages the processor would often miss its TLB.
struct HugePages {
  static constexpr size_t PAGE = 1 << 21;
  const size_t size;
  void* const start;

  explicit HugePages(size_t needed)
      : size(needed + PAGE),
        start(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (start == MAP_FAILED) throw std::bad_alloc();
    madvise(aligned(), needed, MADV_HUGEPAGE);
  }
  ~HugePages() { munmap(start, size); }
  void* aligned() const { return (void*)(((uintptr_t)start + PAGE - 1) / PAGE * PAGE); }
};

// A thread's workspace, whose memory it keeps from step to step.
Workspace& workspace(const Model& model, Random random) {
  static thread_local HugePages memory(sizeof(Workspace));
  return *new (memory.aligned()) Workspace(model, random);
}

int sums_of_tile(long count, long first) { return count - first < TILE ? count - first : TILE; }
}  // namespace

extern "C" {
// Writes the gradients of the mean loss over `count` sums, under dropout of rate threshold / 2^16,
// whose kept values are multiplied by `scale`. Adds to `totals` as `Tile::loss` does. `target` is
// [read position][count]; `random` has the words a of eight streams, then b, c and the counter.
void step(const Model* model, long count, const int* pairs, const int* target, uint64_t* random,
          int threshold, float scale, double* totals) {
  MatrixRegisters registers;
  Workspace& space = workspace(*model, Random(random, threshold));
  Tile& tile = space.tile;
  fold(*model, scale, space.folded);
  space.folded.clear_gradients(*model);
  for (long first = 0; first < count; first += TILE) {
    int valid = sums_of_tile(count, first);
    space.fill(pairs, count, first, valid);
    tile.forward_to_last_mlp();
    tile.mlp(tile.last);
    tile.loss(target + first, count, valid, totals);
    tile.back();
  }
  unfold(*model, scale, space.folded);
  tile.random.save(random);
}

// Writes logits without dropout before and after the last MLP, [2][read position][count][12].
void logits(const Model* model, long count, const int* pairs, float* to) {
  MatrixRegisters registers;
  const uint64_t unused[Random::STATE] = {};
  Workspace& space = workspace(*model, Random(unused, 0));
  Tile& tile = space.tile;
  fold(*model, 1, space.folded);
  float* after = to + (model->length - model->read) * count * VOCABULARY;
  for (long first = 0; first < count; first += TILE) {
    int valid = sums_of_tile(count, first);
    space.fill(pairs, count, first, valid);
    tile.forward_to_last_mlp();
    tile.write_logits(to + first * VOCABULARY, count, valid);
    tile.mlp(tile.last);
    tile.write_logits(after + first * VOCABULARY, count, valid);
  }
}
}
