// A training step of the paper's transformer (App. A) on a CPU core with AVX512-bf16: loss and
// gradients of all parameters, or logits. `fused.py` calls it.
//
// Products take bf16 and add up in float; the stream, norms, softmax, loss and gradients of weights
// are float. Tiles of 64 sums go all the way forward and back, one after the other (`tile.h`), with
// weights that are folded and packed once a step (`folding.h`).
#include <memory>
#include "tile.h"

namespace {
// Beyond the last of `count` sums, the tile has that one again. `pairs` is [position][count].
void fill(Tile& tile, const int* pairs, long count, long first, int valid) {
  for (int i = 0; i < tile.length; i++)
    for (int b = 0; b < TILE; b++)
      tile.pair[i][b] = pairs[i * count + first + (b < valid ? b : valid - 1)];
}
}  // namespace

extern "C" {
// Writes the gradients of the mean loss over `count` sums, under dropout of rate threshold / 2^16,
// whose kept values are multiplied by `scale`. Adds to `totals` as `Tile::loss` does. `target` is
// [read position][count]; `random` has eight lanes' words a, then b, c and the counter.
void step(const Model* model, long count, const int* pairs, const int* target, uint64_t* random,
          int threshold, float scale, double* totals) {
  MatrixRegisters registers;
  std::unique_ptr<Folded> folded(new Folded(*model));
  std::unique_ptr<Tile> tile(new Tile(*model, *folded, Random(random, threshold)));
  fold(*model, scale, *folded);
  folded->clear_gradients(*model);
  for (long first = 0; first < count; first += TILE) {
    int valid = count - first < TILE ? count - first : TILE;
    fill(*tile, pairs, count, first, valid);
    tile->forward_to_last_mlp();
    tile->mlp(tile->last);
    tile->loss(target + first, count, valid, totals);
    tile->back();
  }
  unfold(*model, scale, *folded);
  tile->random.save(random);
}

// Writes logits without dropout before and after the last MLP, [2][read position][count][12].
void logits(const Model* model, long count, const int* pairs, float* to) {
  MatrixRegisters registers;
  const uint64_t unused[32] = {};
  std::unique_ptr<Folded> folded(new Folded(*model));
  std::unique_ptr<Tile> tile(new Tile(*model, *folded, Random(unused, 0)));
  fold(*model, 1, *folded);
  float* after = to + (model->length - model->read) * count * VOCABULARY;
  for (long first = 0; first < count; first += TILE) {
    int valid = count - first < TILE ? count - first : TILE;
    fill(*tile, pairs, count, first, valid);
    tile->forward_to_last_mlp();
    tile->write_logits(to + first * VOCABULARY, count, valid);
    tile->mlp(tile->last);
    tile->write_logits(after + first * VOCABULARY, count, valid);
  }
}
}
