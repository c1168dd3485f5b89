// The forward pass of the paper's transformer (App. A) in float, layer by layer, without the heads,
// skips and MLPs that are ablated. `compiled.py` calls it. Each function first looks whether there is
// room for the sizes that it is given; where there is none, it returns false and does nothing.
//
// Norms' gains and shifts are folded into the linear maps behind them, and the scale of the scores
// into the queries. A group of sums, or of rows of the stream, passes through a layer's part at
// once, so that what it leaves is still in the caches when the next product reads it.
#include <algorithm>
#include <memory>
#include <thread>
#include <vector>
#include "linear.h"
#include "norm.h"

namespace {
constexpr int GROUP = 48;  // sums or rows at once: a multiple of ROWS and of LANES
static_assert(GROUP % ROWS == 0 && GROUP % LANES == 0);
using Rows = float[GROUP][D];

// A thread's own memory, which it keeps.
template <class Memory> Memory& memory_of() {
  static thread_local const std::unique_ptr<Memory> memory(new Memory());
  return *memory;
}

// f(first, valid) for each group of at most GROUP of `count`, in `threads` threads.
template <class Function> void for_each_group(long count, int threads, Function f) {
  const long groups = (count + GROUP - 1) / GROUP;
  auto part = [&](long thread) {
    for (long g = groups * thread / threads; g < groups * (thread + 1) / threads; g++)
      f(g * GROUP, (int)std::min<long>(GROUP, count - g * GROUP));
  };
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads; thread++) others.emplace_back(part, thread);
  part(0);
  for (std::thread& other : others) other.join();
}

int up_to_whole(int count, int unit) { return (count + unit - 1) / unit * unit; }

// True if all of `count` numbers are from 0 to `size` - 1.
bool are_below(long size, const int* numbers, long count) {
  return std::all_of(numbers, numbers + count, [=](int n) { return n >= 0 && n < size; });
}

// LayerNorm of `valid` rows of x, `width` apart. Up to a multiple of LANES, the last one follows
// again.
INLINE void normalise_rows(const float* x, long width, int valid, Rows& to) {
  alignas(64) float scale[LANES], last[LANES][D];
  for (int r = 0; r < valid; r += LANES) {
    if (r + LANES <= valid) {
      normalise(x + r * width, to[r], scale, width);
      continue;
    }
    for (int i = 0; i < LANES; i++)
      memcpy(last[i], x + std::min(r + i, valid - 1) * width, sizeof last[i]);
    normalise(last[0], to[r], scale);
  }
}
}  // namespace

// ---- what compiled.py fills in ----
extern "C" {
// What of a layer's attention is left out.
struct Zeroed {
  int heads;  // a bit for each
  int skip;   // 1 if nothing skips the attention
};
struct FirstLayer {  // its tables have a row for each position and token there
  int length, tokens, queries;
  const int* query;        // positions
  const double* term;      // of the softmax: [head][query's row][key's row]
  const float* written;    // [head][key's row][128]
  const float* embedding;  // [token][128]
  const float* bias;       // of the output projection
};
struct Attention {
  int length, queries;
  const int* query;
  int causal;
  Linear kv, q;
  const float *cosine, *sine;  // [length][64], as `rotated` takes them
};
struct Output {
  Linear heads[HEADS];  // the output projection by head, without its bias
  const float* bias;
};
struct Mlp {
  Linear up, down;
};
}

namespace {
// ---- layer 0's attention, from tables ----
// The attention probabilities of ROWS queries of a sum: a key's position for each head.
using Pattern = float[ROWS][HEADS * MOST_POSITIONS];

// The attention probabilities of some queries of one sum. Beyond them, `p` keeps what it had.
INLINE void look_up_pattern(const FirstLayer& layer, const int* row, const int* query, int queries,
                            Pattern& p) {
  const long rows = (long)layer.length * layer.tokens;
  for (int t = 0; t < queries; t++)
    for (int h = 0; h < HEADS; h++) {
      const double* terms = layer.term + (h * rows + row[query[t]]) * rows;
      double term[MOST_POSITIONS], total = 0;
      for (int j = 0; j < layer.length; j++) total += term[j] = terms[row[j]];
      for (int j = 0; j < layer.length; j++) p[t][h * layer.length + j] = term[j] / total;
    }
}

// The stream after layer 0's attention, at some queries of one sum.
INLINE void mix_first(const FirstLayer& layer, const int* row, const int* query, int queries,
                      const Pattern& p, Zeroed zeroed, float* mid) {
  const long rows = (long)layer.length * layer.tokens;
  for (int c = 0; c < D; c += PANEL) {
    Panel out[ROWS];
    for (Panel& of_query : out) of_query = Panel(layer.bias + c);
    for (int h = 0; h < HEADS; h++) {
      if (zeroed.heads >> h & 1) continue;
      for (int j = 0; j < layer.length; j++) {
        Panel written(layer.written + (h * rows + row[j]) * D + c);
#pragma GCC unroll 6
        for (int i = 0; i < ROWS; i++) out[i] = out[i] + p[i][h * layer.length + j] * written;
      }
    }
    for (int i = 0; i < queries; i++) {
      if (!zeroed.skip) {
        int token = row[query[i]] % layer.tokens;
        out[i] = out[i] + Panel(layer.embedding + token * D + c);
      }
      store(mid + i * D + c, out[i]);
    }
  }
}

// ---- a later layer's attention ----
struct AttentionMemory {
  alignas(64) Rows normed, q;
  alignas(64) float kv[MOST_POSITIONS][GROUP][2 * D];
  alignas(64) float p[MOST_POSITIONS][GROUP];  // of one query and head: [key][sum]
};

INLINE Panel turned(Panel x, const Attention& layer, int i, int c) {
  return rotated(x, layer.cosine + i * D_HEAD + c % D_HEAD, layer.sine + i * D_HEAD + c % D_HEAD);
}

INLINE void softmax(float (*p)[GROUP], int keys) {
  for (int b = 0; b < GROUP; b += LANES) {
    Vec top = load(p[0] + b), total{};
    for (int j = 1; j < keys; j++) top = max(top, load(p[j] + b));
    for (int j = 0; j < keys; j++) {
      Vec power = exponential(load(p[j] + b) - top);
      store(p[j] + b, power);
      total += power;
    }
    for (int j = 0; j < keys; j++) store(p[j] + b, load(p[j] + b) / total);
  }
}

// The pattern of a head's query at position i, for all sums of a group.
INLINE void attend(AttentionMemory& memory, int h, int keys) {
  for (int j = 0; j < keys; j++)
    for (int b = 0; b < GROUP; b += LANES) {
      Vec products[LANES];
#pragma GCC unroll 16
      for (int l = 0; l < LANES; l++) {
        Block q(memory.q[b + l] + h * D_HEAD), k(memory.kv[j][b + l] + h * D_HEAD);
        products[l] = folded(q * k);
      }
      store(memory.p[j] + b, sums_of_lanes(products));
    }
  softmax(memory.p, keys);
}

INLINE Block mixed(const AttentionMemory& memory, int h, int b, int keys) {
  Block z;
  for (int j = 0; j < keys; j++)
    z = z + memory.p[j][b] * Block(memory.kv[j][b] + D + h * D_HEAD);
  return z;
}

// ---- MLP ----
// Most neurons are at zero for a sum, and often at once for the same position of the sums around
// it. So the projection down looks only at those that are active in one of ROWS rows.
constexpr int PANELS = MOST_NEURONS / PANEL;
using Bits = uint16_t;  // of the neurons of a panel, set where a neuron is active
static_assert(PANEL == 8 * sizeof(Bits));

struct MlpMemory {
  alignas(64) Rows normed;
  alignas(64) float neurons[GROUP * MOST_NEURONS];
  Bits active[GROUP * PANELS];
  Columns<MOST_NEURONS> collected;
};

// The neurons of up to GROUP rows x, `width` apart: [row][d_ff], and their bits.
INLINE void fire(const Mlp& layer, const float* x, long width, int valid, Rows& normed,
                 float* neurons, Bits* active) {
  const int d_ff = layer.up.out;
  normalise_rows(x, width, valid, normed);
  apply(layer.up, normed[0], D, up_to_whole(valid, ROWS), [&](int r, int c, Panel y) {
    active[(r * d_ff + c) / PANEL] = positive(y);
    store(neurons + r * d_ff + c, max(0, y));  // NaN stays NaN
  });
}

// Collects the neurons that are active in one of ROWS rows; of `chosen` alone, if it is given.
INLINE void collect(int d_ff, const float* neurons, const Bits* active, const Bits* chosen,
                    Columns<MOST_NEURONS>& to) {
  const int panels = d_ff / PANEL;
  to.count = 0;
  for (int panel = 0; panel < panels; panel++) {
    uint32_t bits = 0;
    for (int i = 0; i < ROWS; i++) bits |= active[i * panels + panel];
    if (chosen) bits &= chosen[panel];
    for (; bits; bits &= bits - 1) {
      const int k = panel * PANEL + __builtin_ctz(bits);
      to.number[to.count] = k;
      for (int i = 0; i < ROWS; i++) to.value[to.count][i] = neurons[i * d_ff + k];
      to.count++;
    }
  }
  for (int i = 0; i < AHEAD; i++) to.number[to.count + i] = 0;
}
}  // namespace

extern "C" {
// Layer 0's stream after its attention, [condition][count][queries][128], from each token's row,
// [count][length].
bool first_mids(const FirstLayer* layer, long count, int threads, const int* rows, int conditions,
                const Zeroed* zeroed, float* mids) {
  const int length = layer->length;
  if (length > MOST_POSITIONS || !are_below(length, layer->query, layer->queries) ||
      !are_below((long)length * layer->tokens, rows, count * length))
    return false;
  for_each_group(count, threads, [=](long first, int valid) {
    alignas(64) Pattern p = {};
    for (long sum = first; sum < first + valid; sum++) {
      const int* row = rows + sum * length;
      for (int t = 0; t < layer->queries; t += ROWS) {
        const int* query = layer->query + t;
        const int queries = std::min(ROWS, layer->queries - t);
        look_up_pattern(*layer, row, query, queries, p);
        for (int i = 0; i < conditions; i++) {
          float* mid = mids + ((i * count + sum) * layer->queries + t) * D;
          mix_first(*layer, row, query, queries, p, zeroed[i], mid);
        }
      }
    }
  });
  return true;
}

// The heads' outputs, [count][queries][128], from the stream, [count][length][128].
bool attention(const Attention* layer, long count, int threads, const float* resid, float* z) {
  if (layer->length > MOST_POSITIONS || layer->kv.out > 2 * D || layer->q.out > D ||
      !are_below(layer->length, layer->query, layer->queries))
    return false;
  const long width = (long)layer->length * D;
  for_each_group(count, threads, [=](long first, int valid) {
    AttentionMemory& memory = memory_of<AttentionMemory>();
    const float* x = resid + first * width;
    const int rows = up_to_whole(valid, ROWS);
    for (int i = 0; i < layer->length; i++) {
      normalise_rows(x + i * D, width, valid, memory.normed);
      apply(layer->kv, memory.normed[0], D, rows, [&](int b, int c, Panel y) {
        store(memory.kv[i][b] + c, turned(y, *layer, i, c));
      });
    }
    for (int t = 0; t < layer->queries; t++) {
      const int i = layer->query[t], keys = layer->causal ? i + 1 : layer->length;
      normalise_rows(x + i * D, width, valid, memory.normed);
      apply(layer->q, memory.normed[0], D, rows, [&](int b, int c, Panel y) {
        store(memory.q[b] + c, turned(y, *layer, i, c));
      });
      for (int h = 0; h < HEADS; h++) {
        attend(memory, h, keys);
        for (int b = 0; b < valid; b++)
          store(z + ((first + b) * layer->queries + t) * D + h * D_HEAD, mixed(memory, h, b, keys));
      }
    }
  });
  return true;
}

// The stream after the attention, [condition][rows][128], from the heads' outputs and the stream
// before it, [rows][128].
bool mids(const Output* layer, long count, int threads, const float* z, const float* resid,
          int conditions, const Zeroed* zeroed, float* to) {
  for (const Linear& head : layer->heads)
    if (head.out > D) return false;
  for_each_group(count, threads, [=](long first, int valid) {
    alignas(64) Rows of_head[HEADS], padded;
    const float* from = z + first * D;
    if (valid < GROUP) {
      memset(padded, 0, sizeof padded);
      memcpy(padded, from, valid * sizeof padded[0]);
      from = padded[0];
    }
    for (int h = 0; h < HEADS; h++)
      apply(layer->heads[h], from + h * D_HEAD, D, up_to_whole(valid, ROWS),
            [&](int r, int c, Panel y) { store(of_head[h][r] + c, y); });
    for (int i = 0; i < conditions; i++)
      for (int r = 0; r < valid; r++) {
        Row mid(layer->bias);
        if (!zeroed[i].skip) mid = mid + Row(resid + (first + r) * D);
        for (int h = 0; h < HEADS; h++)
          if (!(zeroed[i].heads >> h & 1)) mid = mid + Row(of_head[h][r]);
        store(to + (i * count + first + r) * D, mid);
      }
  });
  return true;
}

// The stream after the MLP, from the one before it: [count][queries][128] both. If `chosen` is given,
// only neurons whose bits are set in it write.
bool mlp(const Mlp* layer, long count, int threads, int queries, const float* mid,
         const Bits* chosen, float* post) {
  if (layer->up.out > MOST_NEURONS || layer->down.in > MOST_NEURONS) return false;
  const long width = (long)queries * D;
  for_each_group(count, threads, [=](long first, int valid) {
    MlpMemory& memory = memory_of<MlpMemory>();
    const int d_ff = layer->up.out;
    for (int t = 0; t < queries; t++) {
      const float* x = mid + first * width + t * D;
      float* to = post + first * width + t * D;
      fire(*layer, x, width, valid, memory.normed, memory.neurons, memory.active);
      for (int r = 0; r < valid; r += ROWS) {
        collect(d_ff, memory.neurons + r * d_ff, memory.active + r * d_ff / PANEL, chosen,
                memory.collected);
        apply(layer->down, memory.collected, [&](int i, int c, Panel y) {
          const long at = (r + i) * width + c;
          if (r + i < valid) store(to + at, y + Panel(x + at));
        });
      }
    }
  });
  return true;
}

// Logits, [rows][vocabulary], from the stream after the last layer.
bool logits(const Linear* unembed, long count, int threads, int vocabulary, const float* resid,
            float* to) {
  if (vocabulary > unembed->out) return false;
  for_each_group(count, threads, [=](long first, int valid) {
    alignas(64) Rows normed;
    normalise_rows(resid + first * D, D, valid, normed);
    apply(*unembed, normed[0], D, up_to_whole(valid, ROWS), [&](int r, int c, Panel y) {
      alignas(64) float columns[PANEL];
      store(columns, y);
      if (r < valid && c < vocabulary)
        memcpy(to + (first + r) * vocabulary + c, columns,
               std::min(PANEL, vocabulary - c) * sizeof columns[0]);
    });
  });
  return true;
}
}
