// A tile of sums through the model and back, so that what the way back needs stays in the caches.
//
// Activations are [position][sum][128]. Norms' gains and shifts, dropout's scales and layer 0's
// projections are folded into what is read here (`folding.h`). With masks m of zeros and ones,
// there remain
//
//   norm       n = (x - mean) / sd             dx = (dn - mean(dn) - n mean(dn n)) / sd
//   product    y = W x + b                     dW = sum of dy x',   db = sum of dy,   dx = W' dy
//   rotary     y = x cos + (-x1, x0) sin       dx = dy cos - (-dy1, dy0) sin
//   softmax    p = exp(s) / sum of exp(s)      ds = p (dp - sum of p dp)
//   attention  z = sum over keys of m p v      dp = m dz v,   dv = sum over queries of m p dz
//   layer 0    x = stream + m (sum over keys of m p vo + b), where p is of scores; stream, scores
//              and vo are looked up by pairs
//   MLP        x += m (W_down m relu(W_up n + b) + b)
//   loss       mean of log(sum of exp(z)) - z[target]      dz = (softmax(z) - onehot) / count
#pragma once
#include "folding.h"

namespace {
// Dropout's draws: SFC64 in eight lanes, each as numpy has it; 32 draws of 16 bits at a time.
struct Random {
  typedef uint64_t Lanes __attribute__((vector_size(64)));
  Lanes a, b, c, counter;
  __m512i threshold;

  Random(const uint64_t* state, int threshold) : threshold(_mm512_set1_epi16((short)threshold)) {
    memcpy(&a, state, 4 * sizeof a);
  }
  void save(uint64_t* state) const { memcpy(state, &a, 4 * sizeof a); }

  // 32 bits, each 0 with probability threshold / 2^16.
  INLINE uint32_t bits() {
    Lanes out = a + b + counter;
    counter += 1;
    a = b ^ (b >> 11);
    b = c + (c << 3);
    c = ((c << 24) | (c >> 40)) + out;
    return _mm512_cmpge_epu16_mask((__m512i)out, threshold);
  }
};

// ---- softmax over keys, for all sums of a tile at once ----
using Scores = float[TILE];  // of a query with one key: those with the other keys follow

// The pattern p from scores in place, and m p. Masks are drawn for the first 32 sums and all keys,
// then for the other 32.
INLINE void softmax(Scores* p, Scores* masked, int keys, Random& random) {
  Block top(p[0]), total;
  for (int j = 1; j < keys; j++) top = max(top, Block(p[j]));
  for (int j = 0; j < keys; j++) {
    Block shifted = Block(p[j]) - top;
    Block power = Block::by_vector([&](int u) { return exponential(shifted.v[u]); });
    store(p[j], power);
    total = total + power;
  }
  uint32_t mask[MOST_POSITIONS][2];
  for (int half = 0; half < 2; half++)
    for (int j = 0; j < keys; j++) mask[j][half] = random.bits();
  for (int j = 0; j < keys; j++) {
    store(p[j], Block(p[j]) / total);
    store(masked[j], where(mask[j], Block(p[j])));
  }
}
// `d` are gradients of m p, and become those of the scores.
INLINE void softmax_back(const Scores* p, const Scores* masked, int keys, Scores* d) {
  Block mean;
  for (int j = 0; j < keys; j++) mean = mean + Block(masked[j]) * Block(d[j]);
  for (int j = 0; j < keys; j++) {
    Block passed = Block(masked[j]) * Block(d[j]);
    store(d[j], passed - Block(p[j]) * mean);
  }
}

// ---- activations ----
// Sources of attention: a key's position for each head, head after head.
constexpr int MOST_SOURCES = (HEADS * MOST_POSITIONS + 15) / 16 * 16;
using Patterns = float[MOST_POSITIONS][MOST_SOURCES];  // of one sum: [query][source]

struct Sublayer {  // attention or MLP
  bf16 normed[MOST_POSITIONS][TILE][D];
  float scale[MOST_POSITIONS][TILE];       // 1 / sd
  uint32_t mask[MOST_POSITIONS][TILE][4];  // of its output, in bits
};
struct Layer {
  Sublayer attention, mlp;
  bf16 projected[MOST_POSITIONS][TILE][3 * D];  // keys, values, queries; rotated
  bf16 z[MOST_POSITIONS][TILE][D];              // the heads' outputs
  bf16 neurons[MOST_POSITIONS * TILE * MOST_NEURONS];
  Scores p[MOST_POSITIONS][HEADS][MOST_POSITIONS];  // the pattern: [query][head][key]
  Scores masked[MOST_POSITIONS][HEADS][MOST_POSITIONS];
};

struct Tile {
  const Model& model;
  const Tables& table;
  Tables& gradient;
  const LayerMaps* maps;
  Random random;
  const int length, read, last;  // of positions; the first that is read; the last layer
  int pair[MOST_POSITIONS][TILE];
  Layer layers[MOST_LAYERS];
  float x[MOST_POSITIONS][TILE][D], g[MOST_POSITIONS][TILE][D];  // the stream and its gradient
  Scores d_scores[MOST_POSITIONS][HEADS][MOST_POSITIONS];

  Tile(const Model& model, Folded& folded, Random random)
      : model(model), table(folded.table), gradient(folded.gradient), maps(folded.maps),
        random(random), length(model.length), read(model.read), last(model.layers - 1) {}

  // ---- what is needed where ----
  int first_query(int l) const { return l == last ? read : 0; }
  int keys(int query) const { return model.causal ? query + 1 : length; }
  int projected_columns(int l, int i) const { return i < first_query(l) ? QUERY : 3 * D; }
  // How many positions from i on are taken back at once: weights' gradients of two, where there are
  // two, stay in registers twice as long.
  int positions_at_once(int i) const { return i + 1 < length ? 2 : 1; }
  bf16* neurons(int l, int i) { return layers[l].neurons + i * TILE * model.d_ff; }

  // ---- layer 0's attention ----
  long cell(int h, int i, int j, int b) const {  // of the table of scores
    return (h * model.pairs + pair[i][b]) * model.pairs + pair[j][b];
  }
  long source_pair(int source, int b) const {  // the row of a source in the table of vo
    return source / length * model.pairs + pair[source % length][b];
  }
  // m p of the sums b to b + 15, sum by sum.
  INLINE void gather_patterns(int b, Patterns* to) const {
    const int sources = HEADS * length;
    for (int i = first_query(0); i < length; i++)
      for (int k = 0; k < sources; k += 16) {
        Vec v[16];
#pragma GCC unroll 16
        for (int m = 0; m < 16; m++) {
          int source = k + m < sources ? k + m : 0;
          v[m] = load(layers[0].masked[i][source / length][source % length] + b);
        }
        transpose_16(v);
#pragma GCC unroll 16
        for (int m = 0; m < 16; m++) store(to[m][i] + k, v[m]);
      }
  }
  // x = stream + m (sum over keys of m p vo + b) of N queries from i on, of sum b.
  template <int N>
  INLINE void mix_first(int i, int b, const Patterns& pattern, const float* const* vo) {
    for (int c = 0; c < D; c += 64) {
      Block out[N];
      for (int n = 0; n < N; n++) out[n] = Block(table.out_bias + c);
      for (int k = 0; k < HEADS * length; k++) {
        Block value(vo[k] + c);
#pragma GCC unroll 5
        for (int n = 0; n < N; n++) out[n] = out[n] + pattern[i + n][k] * value;
      }
#pragma GCC unroll 5
      for (int n = 0; n < N; n++) {
        Block stream(table.stream[pair[i + n][b]] + c);
        const uint32_t* mask = layers[0].attention.mask[i + n][b] + c / 32;
        store(x[i + n][b] + c, stream + where(mask, out[n]));
      }
    }
  }
  void attend_first() {
    Layer& layer = layers[0];
    for (int i = first_query(0); i < length; i++)
      for (int h = 0; h < HEADS; h++) {
        for (int j = 0; j < keys(i); j++)
          for (int b = 0; b < TILE; b++) layer.p[i][h][j][b] = table.scores[cell(h, i, j, b)];
        softmax(layer.p[i][h], layer.masked[i][h], keys(i), random);
        for (int j = keys(i); j < length; j++) store(layer.masked[i][h][j], Block());
      }
    for (int i = first_query(0); i < length; i++)
      for (int b = 0; b < TILE; b++)
        for (uint32_t& word : layer.attention.mask[i][b]) word = random.bits();

    alignas(64) Patterns patterns[16];
    const float* vo[MOST_SOURCES];
    for (int b = 0; b < TILE; b++) {
      if (b % 16 == 0) gather_patterns(b, patterns);
      const Patterns& pattern = patterns[b % 16];
      for (int k = 0; k < HEADS * length; k++) vo[k] = table.vo[source_pair(k, b)];
      int i = first_query(0);
      for (; i + 5 <= length; i += 5) mix_first<5>(i, b, pattern, vo);
      switch (length - i) {
        case 4: mix_first<4>(i, b, pattern, vo); break;
        case 3: mix_first<3>(i, b, pattern, vo); break;
        case 2: mix_first<2>(i, b, pattern, vo); break;
        case 1: mix_first<1>(i, b, pattern, vo);
      }
    }
  }

  // Products of four queries' gradients `d_out` with four sources' vo, [query][source].
  INLINE Vec products_4_by_4(const float (*d_out)[D], const float* const* vo) const {
    Vec parts[16] = {};
    for (int c = 0; c < D; c += LANES) {
      Vec value[4];
#pragma GCC unroll 4
      for (int n = 0; n < 4; n++) value[n] = load(vo[n] + c);
#pragma GCC unroll 4
      for (int m = 0; m < 4; m++) {
        Vec out = load(d_out[m] + c);
#pragma GCC unroll 4
        for (int n = 0; n < 4; n++) parts[4 * m + n] += out * value[n];
      }
    }
    return sums_of_lanes(parts);
  }
  // Adds sum over queries of m p d_out to the gradients of four sources' vo.
  INLINE void add_source_gradients(const Patterns& pattern, int k, const float (*d_out)[D],
                                   float* const* d_vo) const {
    for (int c = 0; c < D; c += 64) {
      Block sums[4];
#pragma GCC unroll 4
      for (int m = 0; m < 4; m++) sums[m] = Block(d_vo[m] + c);
      for (int i = first_query(0); i < length; i++) {
        Block out(d_out[i] + c);
#pragma GCC unroll 4
        for (int m = 0; m < 4; m++) sums[m] = sums[m] + pattern[i][k + m] * out;
      }
#pragma GCC unroll 4
      for (int m = 0; m < 4; m++) store(d_vo[m] + c, sums[m]);
    }
  }
  // The gradients of the stream that layer 0 leaves, through its dropout; adds those of the stream
  // that enters it, and of the bias.
  INLINE void leave_first_back(int b, float (*d_out)[D]) {
    Row d_bias(gradient.out_bias);
    for (int i = first_query(0); i < length; i++) {
      Row d_stream(g[i][b]);
      Row passed = where(layers[0].attention.mask[i][b], d_stream);
      float* to = gradient.stream[pair[i][b]];
      store(to, Row(to) + d_stream);
      store(d_out[i], passed);
      d_bias = d_bias + passed;
    }
    store(gradient.out_bias, d_bias);
  }
  // Gradients of m p of 16 sums, four queries by four sources at a time.
  using Products = float[(MOST_POSITIONS + 3) / 4][MOST_SOURCES / 4][16];
  INLINE void scatter_products(int b, const Products* products) {
    const int sources = HEADS * length;
    for (int i = first_query(0); i < length; i += 4)
      for (int k = 0; k < sources; k += 4) {
        Vec v[16];
#pragma GCC unroll 16
        for (int m = 0; m < 16; m++) v[m] = load(products[m][i / 4][k / 4]);
        transpose_16(v);
#pragma GCC unroll 16
        for (int m = 0; m < 16; m++) {
          int query = i + m / 4, source = k + m % 4;
          if (query < length && source < sources)
            store(d_scores[query][source / length][source % length] + b, v[m]);
        }
      }
  }
  void attend_first_back() {
    Layer& layer = layers[0];
    const int sources = HEADS * length;
    alignas(64) Patterns patterns[16];
    alignas(64) Products products[16];
    alignas(64) float d_out[MOST_POSITIONS + 3][D] = {};  // of one sum; zeros beyond the last query
    alignas(64) float beyond[D] = {};  // in place of the sources that make up a last four
    const float* vo[MOST_SOURCES];
    float* d_vo[MOST_SOURCES];
    for (int b = 0; b < TILE; b++) {
      if (b % 16 == 0) gather_patterns(b, patterns);
      for (int k = 0; k < MOST_SOURCES; k++) {
        vo[k] = k < sources ? table.vo[source_pair(k, b)] : beyond;
        d_vo[k] = k < sources ? gradient.vo[source_pair(k, b)] : beyond;
      }
      leave_first_back(b, d_out);
      for (int k = 0; k < sources; k += 4) {
        for (int i = first_query(0); i < length; i += 4)
          store(products[b % 16][i / 4][k / 4], products_4_by_4(d_out + i, vo + k));
        add_source_gradients(patterns[b % 16], k, d_out, d_vo + k);
      }
      if (b % 16 == 15) scatter_products(b - 15, products);
    }
    for (int i = first_query(0); i < length; i++)
      for (int h = 0; h < HEADS; h++) {
        softmax_back(layer.p[i][h], layer.masked[i][h], keys(i), d_scores[i][h]);
        for (int j = 0; j < keys(i); j++)
          for (int b = 0; b < TILE; b++)
            gradient.scores[cell(h, i, j, b)] += d_scores[i][h][j][b];
      }
  }

  // ---- between the stream and a sublayer, at position i ----
  // f(row, first column, 64 columns) takes W n + b.
  template <class Function>
  INLINE void enter(const Linear& map, Sublayer& sublayer, int i, int outputs, Function f) {
    for (int b = 0; b < TILE; b += 16)
      normalise(x[i][b], sublayer.normed[i][b], sublayer.scale[i] + b);
    map.apply(sublayer.normed[i][0], outputs, f);
  }
  void enter_back(const Linear& map, const Sublayer& sublayer, int i, int positions, int outputs,
                  const bf16* dy) {
    alignas(64) float dn[2 * TILE][D];
    const int rows = positions * TILE;
    map.back(dy, sublayer.normed[i][0], rows, outputs,
             [&](int row, int c, Block dx) { store(dn[row] + c, dx); });
    for (int r = 0; r < rows; r += 16)
      normalise_back(dn[r], sublayer.normed[i][r], sublayer.scale[i] + r, g[i][r]);
  }
  // x += m (W input + b)
  void leave(const Linear& map, Sublayer& sublayer, int i, const bf16* input) {
    map.apply(input, D, [&](int b, int c, Block y) {
      uint32_t* mask = sublayer.mask[i][b] + c / 32;
      mask[0] = random.bits();
      mask[1] = random.bits();
      float* to = x[i][b] + c;
      store(to, Block(to) + where(mask, y));
    });
  }
  // f(row, first column, 64 columns) takes the gradients of the input.
  template <class Function>
  INLINE void leave_back(const Linear& map, const Sublayer& sublayer, int i, int positions,
                         const bf16* input, Function f) {
    alignas(64) bf16 passed[2 * TILE][D];
    const int rows = positions * TILE;
    for (int r = 0; r < rows; r++) store(passed[r], where(sublayer.mask[i][r], Row(g[i][r])));
    map.back(passed[0], input, rows, D, f);
  }

  // ---- later layers' attention ----
  INLINE Block turned(Block x, int i, float sign = 1) const {
    return rotated(x, model.cosine + i * D_HEAD, model.sine + i * D_HEAD, sign);
  }
  // Products of two heads' columns, 64 sums of `a` and `b` [sum][width]: q k, or dz v.
  INLINE void head_products(const bf16* a, long a_width, const bf16* b, long b_width, float scale,
                            float* to) const {
    for (int first = 0; first < TILE; first += 16) {
      Vec parts[16];
#pragma GCC unroll 16
      for (int m = 0; m < 16; m++)
        parts[m] = folded_product(a + (first + m) * a_width, b + (first + m) * b_width);
      store(to + first, sums_of_lanes(parts) * scale);
    }
  }
  // z of one sum and head.
  INLINE void mix(int l, int h, int b) {
    Layer& layer = layers[l];
    alignas(64) float v[MOST_POSITIONS][D_HEAD];
    for (int j = 0; j < length; j++) store(v[j], Block(layer.projected[j][b] + VALUE + h * D_HEAD));
    for (int i = first_query(l); i < length; i++) {
      Block z;
      for (int j = 0; j < keys(i); j++) z = z + layer.masked[i][h][j][b] * Block(v[j]);
      store(layer.z[i][b] + h * D_HEAD, z);
    }
  }
  void attend(int l) {
    Layer& layer = layers[l];
    for (int i = 0; i < length; i++)
      enter(maps[l].projection, layer.attention, i, projected_columns(l, i),
            [&](int b, int c, Block y) { store(layer.projected[i][b] + c, turned(y, i)); });
    for (int i = first_query(l); i < length; i++)
      for (int h = 0; h < HEADS; h++) {
        const bf16* query = layer.projected[i][0] + QUERY + h * D_HEAD;
        for (int j = 0; j < keys(i); j++)
          head_products(query, 3 * D, layer.projected[j][0] + KEY + h * D_HEAD, 3 * D, SCORE_SCALE,
                        layer.p[i][h][j]);
        softmax(layer.p[i][h], layer.masked[i][h], keys(i), random);
      }
    for (int h = 0; h < HEADS; h++)
      for (int b = 0; b < TILE; b++) mix(l, h, b);
    for (int i = first_query(l); i < length; i++)
      leave(maps[l].output, layer.attention, i, layer.z[i][0]);
  }

  // Keys, values and queries of one sum and head give way to their gradients, two at a time.
  INLINE void head_back(int l, int h, int b) {
    Layer& layer = layers[l];
    alignas(64) float q[MOST_POSITIONS][D_HEAD], k[MOST_POSITIONS][D_HEAD];
    alignas(64) float dz[MOST_POSITIONS][D_HEAD];
    for (int i = first_query(l); i < length; i++) {
      store(q[i], Block(layer.projected[i][b] + QUERY + h * D_HEAD) * SCORE_SCALE);
      store(dz[i], Block(layer.z[i][b] + h * D_HEAD));
      for (int j = keys(i); j < length; j++) layer.masked[i][h][j][b] = d_scores[i][h][j][b] = 0;
    }
    for (int j = 0; j < length; j++)
      store(k[j], Block(layer.projected[j][b] + KEY + h * D_HEAD) * SCORE_SCALE);

    for (int j = 0, other; j < length; j += 2) {
      other = j + 1 < length ? 1 : 0;
      Block dk[2], dv[2];
      for (int i = first_query(l); i < length; i++) {
        Block query(q[i]), d_out(dz[i]);
#pragma GCC unroll 2
        for (int m = 0; m < 2; m++) {
          dv[m] = dv[m] + layer.masked[i][h][j + m * other][b] * d_out;
          dk[m] = dk[m] + d_scores[i][h][j + m * other][b] * query;
        }
      }
      for (int m = 0; m <= other; m++) {
        bf16* to = layer.projected[j + m][b] + h * D_HEAD;
        store(to + KEY, turned(dk[m], j + m, -1));
        store(to + VALUE, turned(dv[m], j + m, -1));
      }
    }
    for (int i = first_query(l), other; i < length; i += 2) {
      other = i + 1 < length ? 1 : 0;
      Block dq[2];
      for (int j = 0; j < length; j++) {
        Block key(k[j]);
#pragma GCC unroll 2
        for (int m = 0; m < 2; m++) dq[m] = dq[m] + d_scores[i + m * other][h][j][b] * key;
      }
      for (int m = 0; m <= other; m++)
        store(layer.projected[i + m][b] + QUERY + h * D_HEAD, turned(dq[m], i + m, -1));
    }
  }
  void attend_back(int l) {  // z, keys, values and queries give way to their gradients
    Layer& layer = layers[l];
    for (int i = first_query(l); i < length; i += positions_at_once(i))
      leave_back(maps[l].output, layer.attention, i, positions_at_once(i), layer.z[i][0],
                 [&](int row, int c, Block dz) { store(layer.z[i][row] + c, dz); });
    for (int i = first_query(l); i < length; i++)
      for (int h = 0; h < HEADS; h++) {
        const bf16* dz = layer.z[i][0] + h * D_HEAD;
        for (int j = 0; j < keys(i); j++)
          head_products(dz, D, layer.projected[j][0] + VALUE + h * D_HEAD, 3 * D, 1,
                        d_scores[i][h][j]);
        softmax_back(layer.p[i][h], layer.masked[i][h], keys(i), d_scores[i][h]);
      }
    for (int h = 0; h < HEADS; h++)
      for (int b = 0; b < TILE; b++) head_back(l, h, b);
    for (int i = 0, positions; i < length; i += positions) {
      positions = positions_at_once(i);
      if (i < first_query(l) && i + positions > first_query(l)) positions = 1;  // without queries
      enter_back(maps[l].projection, layer.attention, i, positions, projected_columns(l, i),
                 layer.projected[i][0]);
    }
  }

  // ---- MLP ----
  void mlp(int l) {
    for (int i = first_query(l); i < length; i++) {
      bf16* hidden = neurons(l, i);
      enter(maps[l].up, layers[l].mlp, i, model.d_ff, [&](int b, int c, Block y) {
        uint32_t mask[] = {random.bits(), random.bits()};
        store(hidden + b * model.d_ff + c, where(mask, max(y, 0)));
      });
      leave(maps[l].down, layers[l].mlp, i, hidden);
    }
  }
  // Neurons give way to their gradients, which pass where a neuron is above zero.
  void mlp_back(int l) {
    for (int i = first_query(l); i < length; i += positions_at_once(i)) {
      bf16* hidden = neurons(l, i);
      leave_back(maps[l].down, layers[l].mlp, i, positions_at_once(i), hidden,
                 [&](int row, int c, Block d) {
                   bf16* to = hidden + row * model.d_ff + c;
                   Block neuron(to);
                   store(to, Block::by_vector([&](int u) {
                           return neuron.v[u] > 0 ? d.v[u] : Vec{};
                         }));
                 });
      enter_back(maps[l].up, layers[l].mlp, i, positions_at_once(i), model.d_ff, hidden);
    }
  }

  // ---- logits and loss ----
  static constexpr __mmask16 TOKENS = (1 << VOCABULARY) - 1;

  INLINE Vec logits(const float* normed) const {
    Vec parts[16] = {};
    Row row(normed);
#pragma GCC unroll 16
    for (int t = 0; t < VOCABULARY; t++) parts[t] = folded(row * Row(table.unembed[t]));
    return sums_of_lanes(parts) + load(table.unembed_bias);
  }
  // Of the first `valid` sums, to [read position][count][12].
  void write_logits(float* to, long count, int valid) const {
    alignas(64) float normed[TILE][D], scale[TILE];
    for (int i = read; i < length; i++) {
      for (int b = 0; b < TILE; b += 16) normalise(x[i][b], normed[b], scale + b);
      for (int b = 0; b < valid; b++) {
        float* of_sum = to + ((i - read) * count + b) * VOCABULARY;
        _mm512_mask_storeu_ps(of_sum, TOKENS, logits(normed[b]));
      }
    }
  }

  // From gradients of a tile's logits: adds the unembedding's, and writes those of the norm.
  INLINE void unembed_back(const float (*d_logits)[LANES], const float (*normed)[D],
                           float (*dn)[D]) {
    for (int c = 0; c < D; c += 64) {
      for (int b = 0; b < TILE; b += 4) {
        Block sums[4];
        for (int t = 0; t < VOCABULARY; t++) {
          Block weight(table.unembed[t] + c);
#pragma GCC unroll 4
          for (int m = 0; m < 4; m++) sums[m] = sums[m] + d_logits[b + m][t] * weight;
        }
        for (int m = 0; m < 4; m++) store(dn[b + m] + c, sums[m]);
      }
      for (int t = 0; t < VOCABULARY; t += 4) {
        Block sums[4];
        for (int m = 0; m < 4; m++) sums[m] = Block(gradient.unembed[t + m] + c);
        for (int b = 0; b < TILE; b++) {
          Block row(normed[b] + c);
#pragma GCC unroll 4
          for (int m = 0; m < 4; m++) sums[m] = sums[m] + d_logits[b][t + m] * row;
        }
        for (int m = 0; m < 4; m++) store(gradient.unembed[t + m] + c, sums[m]);
      }
    }
  }
  // The gradient g of the mean loss over `count` sums, from the tile's first `valid`. Adds to
  // `totals` their loss, correct answers at each read position, and sums without a wrong digit.
  void loss(const int* target, long count, int valid, double* totals) {
    alignas(64) float normed[TILE][D], dn[TILE][D], scale[TILE], d_logits[TILE][LANES] = {};
    uint64_t wrong = 0;
    const float share = 1.f / (count * (length - read));
    Vec d_bias = load(gradient.unembed_bias);
    memset(g[first_query(0)], 0, (length - first_query(0)) * sizeof g[0]);
    for (int i = read; i < length; i++) {
      for (int b = 0; b < TILE; b += 16) normalise(x[i][b], normed[b], scale + b);
      float product = 1;  // of up to 16 sums of powers, each at most 12: one logarithm for all
      for (int b = 0; b < valid; b++) {
        Vec z = logits(normed[b]);
        int answer = target[(i - read) * count + b];
        float top = _mm512_mask_reduce_max_ps(TOKENS, z);
        store(d_logits[b], z);
        float own = d_logits[b][answer];
        Vec power = _mm512_maskz_mov_ps(TOKENS, exponential(z - top));
        float sum_of_powers = _mm512_reduce_add_ps(power);
        product *= sum_of_powers;
        totals[0] += top - own;
        if (b % 16 == 15 || b == valid - 1) {
          totals[0] += __builtin_logf(product);
          product = 1;
        }
        totals[1 + i - read] += own == top;
        wrong |= (uint64_t)(own != top) << b;
        Vec d = power * (share / sum_of_powers);
        d = _mm512_mask_sub_ps(d, 1 << answer, d, _mm512_set1_ps(share));
        d_bias += d;
        store(d_logits[b], d);
      }
      unembed_back(d_logits, normed, dn);
      for (int b = 0; b < TILE; b += 16) normalise_back(dn[b], normed[b], scale + b, g[i][b]);
    }
    store(gradient.unembed_bias, d_bias);
    totals[1 + length - read] += valid - __builtin_popcountll(wrong);
  }

  // ---- all layers ----
  void forward_to_last_mlp() {
    attend_first();
    for (int l = 1; l <= last; l++) {
      mlp(l - 1);
      attend(l);
    }
  }
  void back() {
    for (int l = last; l > 0; l--) {
      mlp_back(l);
      attend_back(l);
    }
    mlp_back(0);
    attend_first_back();
  }
};
}  // namespace
