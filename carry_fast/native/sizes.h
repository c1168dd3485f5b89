// Sizes of the paper's model, and the most that there is room for. `fused.py` and
// `compiled.py` have the same.
#pragma once

namespace {
constexpr int D = 128, HEADS = 2, D_HEAD = D / HEADS, VOCABULARY = 12;
constexpr int MOST_LAYERS = 4, MOST_NEURONS = 1024, MOST_POSITIONS = 31;
constexpr int MOST_HEADS = D / 2;
constexpr int MOST_PAIRS = 320;  // of token and position, in multiples of 64
constexpr int TILE = 64;         // sums that go forward and back together
constexpr int TOKENS = 16;       // the vocabulary, in whole vectors
}  // namespace
