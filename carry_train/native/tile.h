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
#include "random.h"

namespace {
// ---- softmax over keys, for all sums of a tile at once ----
using Scores = float[TILE];  // of a query with one key: those with the other keys follow

// The pattern p from scores in place, and m p.
INLINE void softmax(Scores* p, Scores* masked, int keys, Random& random) {
  uint32_t mask[MOST_POSITIONS][TILE / 32];
  random.draw_keys(mask, keys);
  for (int b = 0; b < TILE; b += UNIT) {
    Unit top(p[0] + b), total;
    for (int j = 1; j < keys; j++) top = max(top, Unit(p[j] + b));
    for (int j = 0; j < keys; j++) {
      Unit shifted = Unit(p[j] + b) - top;
      Unit power = Unit::by_vector([&](int u) { return exponential(shifted.v[u]); });
      store(p[j] + b, power);
      total = total + power;
    }
    for (int j = 0; j < keys; j++) {
      Unit share = Unit(p[j] + b) / total;
      store(p[j] + b, share);
      store(masked[j] + b, where(mask[j], b, share));
    }
  }
}
// `d` are gradients of m p, and become those of the scores.
INLINE void softmax_back(const Scores* p, const Scores* masked, int keys, Scores* d) {
  for (int b = 0; b < TILE; b += UNIT) {
    Unit mean;
    for (int j = 0; j < keys; j++) mean = mean + Unit(masked[j] + b) * Unit(d[j] + b);
    for (int j = 0; j < keys; j++) {
      Unit passed = Unit(masked[j] + b) * Unit(d[j] + b);
      store(d[j] + b, passed - Unit(p[j] + b) * mean);
    }
  }
}

// ---- activations ----
constexpr int ROW = padded(D), PROJECTED_ROW = padded(3 * D);  // from a sum's to the next one's

struct Sublayer {  // attention or MLP
  Number normed[MOST_POSITIONS][TILE][ROW];
  float scale[MOST_POSITIONS][TILE];       // 1 / sd
  uint32_t mask[MOST_POSITIONS][TILE][4];  // of its output, in bits
};
using Pattern = Scores[MOST_POSITIONS * MOST_HEADS * MOST_POSITIONS];  // [query][head][key]
struct Layer {
  Sublayer attention, mlp;
  Number projected[MOST_POSITIONS][TILE][PROJECTED_ROW];  // keys, values, queries; rotated
  Number z[MOST_POSITIONS][TILE][ROW];                    // the heads' outputs
  Number neurons[MOST_POSITIONS * TILE * padded(MOST_NEURONS)];
  Pattern p, masked;
};

// Sources of layer 0's attention: a key's position for each head, head after head.
constexpr int MOST_SOURCES = MOST_HEADS * MOST_POSITIONS;
constexpr int SOURCES = 4, QUERIES = LANES / SOURCES;  // products that make up a vector
struct FirstMemory {  // of as many sums as a vector has lanes
  float pattern[LANES * MOST_POSITIONS * MOST_SOURCES];              // [sum][query][source]
  float products[LANES * (MOST_POSITIONS + QUERIES) * MOST_SOURCES];  // their gradients
};

struct Tile {
  const Model& model;
  const Tables& table;
  Tables& gradient;
  const LayerMaps* maps;
  Random random;
  const int length, heads, d_head;
  const int read, last;           // the first position that is read; the last layer
  const int sources, source_row;  // of layer 0's attention; its row is padded to whole vectors
  const int neuron_row;
  int pair[MOST_POSITIONS][TILE];
  Layer layers[MOST_LAYERS];
  FirstMemory first;
  float x[MOST_POSITIONS][TILE][D], g[MOST_POSITIONS][TILE][D];  // the stream and its gradient
  Pattern d_scores;

  Tile(const Model& model, Folded& folded, Random random)
      : model(model), table(folded.table), gradient(folded.gradient), maps(folded.maps),
        random(random), length(model.length), heads(model.heads), d_head(model.d_head()),
        read(model.read), last(model.layers - 1), sources(heads * length),
        source_row((sources + LANES - 1) / LANES * LANES), neuron_row(padded(model.d_ff)) {}

  // ---- what is needed where ----
  int first_query(int l) const { return l == last ? read : 0; }
  int keys(int query) const { return model.causal ? query + 1 : length; }
  int projected_columns(int l, int i) const { return i < first_query(l) ? QUERY : 3 * D; }
  // How many positions from i on are taken back at once: weights' gradients of two, where there are
  // two, stay in registers twice as long.
  int positions_at_once(int i) const { return i + 1 < length ? 2 : 1; }
  Number* neurons(int l, int i) { return layers[l].neurons + i * TILE * neuron_row; }
  // Of a query at position i and head h, with each key.
  Scores* of_query(Pattern& pattern, int i, int h) const {
    return pattern + (i * heads + h) * length;
  }
  const Scores* of_query(const Pattern& pattern, int i, int h) const {
    return pattern + (i * heads + h) * length;
  }

  // ---- layer 0's attention ----
  long cell(int h, int i, int j, int b) const {  // of the table of scores
    return (h * model.pairs + pair[i][b]) * model.pairs + pair[j][b];
  }
  long source_pair(int source, int b) const {  // the row of a source in the table of vo
    return source / length * model.pairs + pair[source % length][b];
  }
  // In `first`, by the number of the sum among its sums.
  float* pattern_of(int sum) { return first.pattern + sum * length * source_row; }
  float* products_of(int sum, int i, int k) {
    const int groups = (length - first_query(0) + QUERIES - 1) / QUERIES;  // of queries
    const int group = (i - first_query(0)) / QUERIES;
    return first.products + ((sum * groups + group) * source_row + k) * QUERIES;
  }
  // m p of LANES sums from b on, sum by sum.
  INLINE void gather_patterns(int b) {
    for (int i = first_query(0); i < length; i++)
      for (int k = 0; k < sources; k += LANES) {
        Vec v[LANES];
#pragma GCC unroll 16
        for (int m = 0; m < LANES; m++) {
          const int source = k + m < sources ? k + m : 0;
          const Scores* masked = of_query(layers[0].masked, i, source / length);
          v[m] = load(masked[source % length] + b);
        }
        transpose(v);
#pragma GCC unroll 16
        for (int m = 0; m < LANES; m++) store(pattern_of(m) + i * source_row + k, v[m]);
      }
  }
  // x = stream + m (sum over keys of m p vo + b) of N queries from i on, of sum b.
  template <int N>
  INLINE void mix_first(int i, int b, const float* const* vo) {
    const float* pattern = pattern_of(b % LANES) + i * source_row;
    for (int c = 0; c < D; c += UNIT) {
      Unit out[N];
      for (int n = 0; n < N; n++) out[n] = Unit(table.out_bias + c);
      for (int k = 0; k < sources; k++) {
        Unit value(vo[k] + c);
#pragma GCC unroll 5
        for (int n = 0; n < N; n++) out[n] = out[n] + pattern[n * source_row + k] * value;
      }
#pragma GCC unroll 5
      for (int n = 0; n < N; n++) {
        Unit stream(table.stream[pair[i + n][b]] + c);
        store(x[i + n][b] + c, stream + where(layers[0].attention.mask[i + n][b], c, out[n]));
      }
    }
  }
  void attend_first() {
    Layer& layer = layers[0];
    for (int i = first_query(0); i < length; i++)
      for (int h = 0; h < heads; h++) {
        Scores *p = of_query(layer.p, i, h), *masked = of_query(layer.masked, i, h);
        for (int j = 0; j < keys(i); j++)
          for (int b = 0; b < TILE; b++) p[j][b] = table.scores[cell(h, i, j, b)];
        softmax(p, masked, keys(i), random);
        memset(masked[keys(i)], 0, (length - keys(i)) * sizeof masked[0]);
      }
    for (int i = first_query(0); i < length; i++)
      for (int b = 0; b < TILE; b++)
        for (uint32_t& word : layer.attention.mask[i][b]) word = random.bits();

    const float* vo[MOST_SOURCES];
    for (int b = 0; b < TILE; b++) {
      if (b % LANES == 0) gather_patterns(b);
      for (int k = 0; k < sources; k++) vo[k] = table.vo[source_pair(k, b)];
      int i = first_query(0);
      for (; i + 5 <= length; i += 5) mix_first<5>(i, b, vo);
      switch (length - i) {
        case 4: mix_first<4>(i, b, vo); break;
        case 3: mix_first<3>(i, b, vo); break;
        case 2: mix_first<2>(i, b, vo); break;
        case 1: mix_first<1>(i, b, vo);
      }
    }
  }

  // Products of some queries' gradients `d_out` with some sources' vo, [query][source].
  INLINE Vec source_products(const float (*d_out)[D], const float* const* vo) const {
    Vec parts[LANES] = {};
    for (int c = 0; c < D; c += LANES) {
      Vec value[SOURCES];
#pragma GCC unroll 4
      for (int n = 0; n < SOURCES; n++) value[n] = load(vo[n] + c);
#pragma GCC unroll 4
      for (int m = 0; m < QUERIES; m++) {
        Vec out = load(d_out[m] + c);
#pragma GCC unroll 4
        for (int n = 0; n < SOURCES; n++) parts[SOURCES * m + n] += out * value[n];
      }
    }
    return sums_of_lanes(parts);
  }
  // Adds sum over queries of m p d_out to the gradients of some sources' vo.
  INLINE void add_source_gradients(const float* pattern, const float (*d_out)[D],
                                   float* const* d_vo) const {
    for (int c = 0; c < D; c += UNIT) {
      Unit sums[SOURCES];
#pragma GCC unroll 4
      for (int m = 0; m < SOURCES; m++) sums[m] = Unit(d_vo[m] + c);
      for (int i = first_query(0); i < length; i++) {
        Unit out(d_out[i] + c);
#pragma GCC unroll 4
        for (int m = 0; m < SOURCES; m++) sums[m] = sums[m] + pattern[i * source_row + m] * out;
      }
#pragma GCC unroll 4
      for (int m = 0; m < SOURCES; m++) store(d_vo[m] + c, sums[m]);
    }
  }
  // The gradients of the stream that layer 0 leaves, through its dropout; adds those of the stream
  // that enters it, and of the bias.
  INLINE void leave_first_back(int b, float (*d_out)[D]) {
    for (int c = 0; c < D; c += UNIT) {
      Unit d_bias(gradient.out_bias + c);
      for (int i = first_query(0); i < length; i++) {
        Unit d_stream(g[i][b] + c);
        Unit passed = where(layers[0].attention.mask[i][b], c, d_stream);
        float* to = gradient.stream[pair[i][b]] + c;
        store(to, Unit(to) + d_stream);
        store(d_out[i] + c, passed);
        d_bias = d_bias + passed;
      }
      store(gradient.out_bias + c, d_bias);
    }
  }
  // Gradients of m p of LANES sums from b on.
  INLINE void scatter_products(int b) {
    for (int i = first_query(0); i < length; i += QUERIES)
      for (int k = 0; k < sources; k += SOURCES) {
        Vec v[LANES];
#pragma GCC unroll 16
        for (int m = 0; m < LANES; m++) v[m] = load(products_of(m, i, k));
        transpose(v);
#pragma GCC unroll 16
        for (int m = 0; m < LANES; m++) {
          const int query = i + m / SOURCES, source = k + m % SOURCES;
          if (query < length && source < sources)
            store(of_query(d_scores, query, source / length)[source % length] + b, v[m]);
        }
      }
  }
  void attend_first_back() {
    Layer& layer = layers[0];
    // of one sum; zeros beyond the last query
    alignas(64) float d_out[MOST_POSITIONS + QUERIES][D] = {};
    alignas(64) float beyond[D] = {};  // in place of the sources that make up the last ones
    const float* vo[MOST_SOURCES + SOURCES];
    float* d_vo[MOST_SOURCES + SOURCES];
    for (int k = sources; k < sources + SOURCES; k++) vo[k] = d_vo[k] = beyond;
    for (int b = 0; b < TILE; b++) {
      if (b % LANES == 0) gather_patterns(b);
      for (int k = 0; k < sources; k++) {
        vo[k] = table.vo[source_pair(k, b)];
        d_vo[k] = gradient.vo[source_pair(k, b)];
      }
      leave_first_back(b, d_out);
      for (int k = 0; k < sources; k += SOURCES) {
        for (int i = first_query(0); i < length; i += QUERIES)
          store(products_of(b % LANES, i, k), source_products(d_out + i, vo + k));
        add_source_gradients(pattern_of(b % LANES) + k, d_out, d_vo + k);
      }
      if (b % LANES == LANES - 1) scatter_products(b - b % LANES);
    }
    for (int i = first_query(0); i < length; i++)
      for (int h = 0; h < heads; h++) {
        Scores* d = of_query(d_scores, i, h);
        softmax_back(of_query(layer.p, i, h), of_query(layer.masked, i, h), keys(i), d);
        for (int j = 0; j < keys(i); j++)
          for (int b = 0; b < TILE; b++) gradient.scores[cell(h, i, j, b)] += d[j][b];
      }
  }

  // ---- between the stream and a sublayer, at position i ----
  // f(row, first column, a unit of columns) takes W n + b.
  template <class Function>
  INLINE void enter(const Linear& map, Sublayer& sublayer, int i, int outputs, Function f) {
    for (int b = 0; b < TILE; b += LANES)
      normalise(x[i][b], sublayer.normed[i][b], sublayer.scale[i] + b, D, ROW);
    map.apply(sublayer.normed[i][0], ROW, outputs, f);
  }
  void enter_back(const Linear& map, const Sublayer& sublayer, int i, int positions, int outputs,
                  const Number* dy, long dy_row) {
    alignas(64) float dn[2 * TILE][D];
    const int rows = positions * TILE;
    map.back(dy, dy_row, sublayer.normed[i][0], ROW, rows, outputs,
             [&](int row, int c, Unit dx) { store(dn[row] + c, dx); });
    for (int r = 0; r < rows; r += LANES)
      normalise_back(dn[r], sublayer.normed[i][r], sublayer.scale[i] + r, g[i][r], ROW);
  }
  // x += m (W input + b)
  void leave(const Linear& map, Sublayer& sublayer, int i, const Number* input, long input_row) {
    random.draw_columns(sublayer.mask[i], D);
    map.apply(input, input_row, D, [&](int b, int c, Unit y) {
      float* to = x[i][b] + c;
      store(to, Unit(to) + where(sublayer.mask[i][b], c, y));
    });
  }
  // f(row, first column, a unit of columns) takes the gradients of the input.
  template <class Function>
  INLINE void leave_back(const Linear& map, const Sublayer& sublayer, int i, int positions,
                         const Number* input, long input_row, Function f) {
    alignas(64) Number passed[2 * TILE][ROW];
    const int rows = positions * TILE;
    for (int r = 0; r < rows; r++)
      for (int c = 0; c < D; c += UNIT)
        store(passed[r] + c, where(sublayer.mask[i][r], c, Unit(g[i][r] + c)));
    map.back(passed[0], ROW, input, input_row, rows, D, f);
  }

  // ---- later layers' attention ----
  // Columns from c on, of 128, at position i.
  template <int N> INLINE Vecs<N> turned(Vecs<N> x, int i, int c, float sign = 1) const {
    return rotated(x, model.cosine + i * D + c, model.sine + i * D + c, sign);
  }
  // How many lanes of a vector are the head's, if it begins at the head's column c.
  INLINE int lanes_from(int c) const { return d_head - c < LANES ? d_head - c : LANES; }
  // A head's columns as floats, with zeros up to a whole vector.
  INLINE void widen(const Number* from, float* to, float scale = 1) const {
    for (int c = 0; c < d_head; c += LANES) store(to + c, load(from + c, lanes_from(c)) * scale);
  }
  template <int N> INLINE void store_head(Number* to, int c, Vecs<N> x) const {
    if (N > 1) store(to + c, x);
    else store(to + c, x.v[0], lanes_from(c));
  }
  // f(how many vectors of a head's columns are taken at once, as a constant)
  template <class Function> INLINE void by_columns_of_heads(Function f) const {
    if (d_head % UNIT == 0) f(std::integral_constant<int, UNIT_VECTORS>());
    else f(std::integral_constant<int, 1>());
  }
  // Products of two heads' columns, 64 sums of `a` and `b`: q k, or dz v.
  template <int A_ROW, int B_ROW>
  INLINE void head_products(const Number (*a)[A_ROW], const Number (*b)[B_ROW], int a_column,
                            int b_column, float scale, float* to) const {
    const int n_words = d_head / NUMBERS, n_whole = n_words / LANES * LANES;
    for (int sum = 0; sum < TILE; sum += LANES) {
      const Number *left = a[sum] + a_column, *right = b[sum] + b_column;
      Vec parts[LANES] = {};
      auto add = [&](int lanes) __attribute__((always_inline)) {
#pragma GCC unroll 16
        for (int m = 0; m < LANES; m++)
          parts[m] = multiply_add(parts[m], words(left + m * A_ROW, lanes),
                                  words(right + m * B_ROW, lanes));
      };
      for (int w = 0; w < n_whole; w += LANES) {
        add(LANES);
        left += NUMBERS * LANES;
        right += NUMBERS * LANES;
        asm("" : "+r"(left), "+r"(right));  // else GCC keeps an address for each sum
      }
      if (n_words > n_whole) add(n_words - n_whole);
      store(to + sum, sums_of_lanes(parts) * scale);
    }
  }
  // z of one sum and head.
  template <int N> INLINE void mix(int l, int h, int b) {
    Layer& layer = layers[l];
    alignas(64) float v[MOST_POSITIONS][D];
    for (int j = 0; j < length; j++) widen(layer.projected[j][b] + VALUE + h * d_head, v[j]);
    for (int i = first_query(l); i < length; i++) {
      const Scores* masked = of_query(layer.masked, i, h);
      for (int c = 0; c < d_head; c += N * LANES) {
        Vecs<N> z;
        for (int j = 0; j < keys(i); j++) z = z + masked[j][b] * Vecs<N>(v[j] + c);
        store_head(layer.z[i][b] + h * d_head, c, z);
      }
    }
  }
  void attend(int l) {
    Layer& layer = layers[l];
    for (int i = 0; i < length; i++)
      enter(maps[l].projection, layer.attention, i, projected_columns(l, i),
            [&](int b, int c, Unit y) {
              store(layer.projected[i][b] + c, turned(y, i, c % D));
            });
    for (int i = first_query(l); i < length; i++)
      for (int h = 0; h < heads; h++) {
        Scores* p = of_query(layer.p, i, h);
        for (int j = 0; j < keys(i); j++)
          head_products(layer.projected[i], layer.projected[j], QUERY + h * d_head,
                        KEY + h * d_head, model.score_scale(), p[j]);
        softmax(p, of_query(layer.masked, i, h), keys(i), random);
      }
    by_columns_of_heads([&](auto vectors) {
      for (int h = 0; h < heads; h++)
        for (int b = 0; b < TILE; b++) mix<vectors>(l, h, b);
    });
    for (int i = first_query(l); i < length; i++)
      leave(maps[l].output, layer.attention, i, layer.z[i][0], ROW);
  }

  // Keys, values and queries of one sum and head are overwritten by their gradients, two at a time.
  template <int N> INLINE void head_back(int l, int h, int b) {
    using Columns = Vecs<N>;
    Layer& layer = layers[l];
    alignas(64) float q[MOST_POSITIONS][D], k[MOST_POSITIONS][D], dz[MOST_POSITIONS][D];
    const float scale = model.score_scale();
    const int column = h * d_head;
    for (int i = first_query(l); i < length; i++) {
      widen(layer.projected[i][b] + QUERY + column, q[i], scale);
      widen(layer.z[i][b] + column, dz[i]);
      for (int j = keys(i); j < length; j++)
        of_query(layer.masked, i, h)[j][b] = of_query(d_scores, i, h)[j][b] = 0;
    }
    for (int j = 0; j < length; j++) widen(layer.projected[j][b] + KEY + column, k[j], scale);

    for (int j = 0, other; j < length; j += 2) {
      other = j + 1 < length ? 1 : 0;
      for (int c = 0; c < d_head; c += N * LANES) {
        Columns dk[2], dv[2];
        for (int i = first_query(l); i < length; i++) {
          Columns query(q[i] + c), d_out(dz[i] + c);
          const Scores *masked = of_query(layer.masked, i, h), *d = of_query(d_scores, i, h);
#pragma GCC unroll 2
          for (int m = 0; m < 2; m++) {
            dv[m] = dv[m] + masked[j + m * other][b] * d_out;
            dk[m] = dk[m] + d[j + m * other][b] * query;
          }
        }
        for (int m = 0; m <= other; m++) {
          Number* to = layer.projected[j + m][b] + column;
          store_head(to + KEY, c, turned(dk[m], j + m, column + c, -1));
          store_head(to + VALUE, c, turned(dv[m], j + m, column + c, -1));
        }
      }
    }
    for (int i = first_query(l), other; i < length; i += 2) {
      other = i + 1 < length ? 1 : 0;
      for (int c = 0; c < d_head; c += N * LANES) {
        Columns dq[2];
        for (int j = 0; j < length; j++) {
          Columns key(k[j] + c);
#pragma GCC unroll 2
          for (int m = 0; m < 2; m++)
            dq[m] = dq[m] + of_query(d_scores, i + m * other, h)[j][b] * key;
        }
        for (int m = 0; m <= other; m++)
          store_head(layer.projected[i + m][b] + QUERY + column, c,
                     turned(dq[m], i + m, column + c, -1));
      }
    }
  }
  void attend_back(int l) {  // z, keys, values and queries are overwritten by their gradients
    Layer& layer = layers[l];
    for (int i = first_query(l); i < length; i += positions_at_once(i))
      leave_back(maps[l].output, layer.attention, i, positions_at_once(i), layer.z[i][0], ROW,
                 [&](int row, int c, Unit dz) { store(layer.z[i][row] + c, dz); });
    for (int i = first_query(l); i < length; i++)
      for (int h = 0; h < heads; h++) {
        Scores* d = of_query(d_scores, i, h);
        for (int j = 0; j < keys(i); j++)
          head_products(layer.z[i], layer.projected[j], h * d_head, VALUE + h * d_head, 1, d[j]);
        softmax_back(of_query(layer.p, i, h), of_query(layer.masked, i, h), keys(i), d);
      }
    by_columns_of_heads([&](auto vectors) {
      for (int h = 0; h < heads; h++)
        for (int b = 0; b < TILE; b++) head_back<vectors>(l, h, b);
    });
    for (int i = 0, positions; i < length; i += positions) {
      positions = positions_at_once(i);
      if (i < first_query(l) && i + positions > first_query(l)) positions = 1;  // without queries
      enter_back(maps[l].projection, layer.attention, i, positions, projected_columns(l, i),
                 layer.projected[i][0], PROJECTED_ROW);
    }
  }

  // ---- MLP ----
  void mlp(int l) {
    uint32_t mask[TILE][MOST_NEURONS / 32];
    for (int i = first_query(l); i < length; i++) {
      Number* hidden = neurons(l, i);
      random.draw_columns(mask, model.d_ff);
      enter(maps[l].up, layers[l].mlp, i, model.d_ff, [&](int b, int c, Unit y) {
        store(hidden + b * neuron_row + c, where(mask[b], c, max(y, 0)));
      });
      leave(maps[l].down, layers[l].mlp, i, hidden, neuron_row);
    }
  }
  // Neurons are overwritten by their gradients, which pass where a neuron is above zero.
  void mlp_back(int l) {
    for (int i = first_query(l); i < length; i += positions_at_once(i)) {
      Number* hidden = neurons(l, i);
      leave_back(maps[l].down, layers[l].mlp, i, positions_at_once(i), hidden, neuron_row,
                 [&](int row, int c, Unit d) {
                   Number* to = hidden + row * neuron_row + c;
                   Unit neuron(to);
                   store(to, Unit::by_vector([&](int u) {
                           return neuron.v[u] > 0 ? d.v[u] : Vec{};
                         }));
                 });
      enter_back(maps[l].up, layers[l].mlp, i, positions_at_once(i), model.d_ff, hidden,
                 neuron_row);
    }
  }

  // ---- logits and loss ----
  using Tokens = Vecs<TOKENS / LANES>;

  // Minus infinity beyond the vocabulary.
  INLINE Tokens logits(const float* normed) const {
    Row row(normed);
    return Tokens::by_vector([&](int u) {
      Vec parts[LANES] = {};
#pragma GCC unroll 16
      for (int t = 0; t < LANES; t++)
        if (LANES * u + t < VOCABULARY) parts[t] = folded(row * Row(table.unembed[LANES * u + t]));
      return sums_of_lanes(parts) + load(table.unembed_bias + LANES * u);
    });
  }
  // Of the first `valid` sums, to [read position][count][12].
  void write_logits(float* to, long count, int valid) const {
    alignas(64) float normed[TILE][D], scale[TILE], of_sum[TOKENS];
    for (int i = read; i < length; i++) {
      for (int b = 0; b < TILE; b += LANES) normalise(x[i][b], normed[b], scale + b);
      for (int b = 0; b < valid; b++) {
        store(of_sum, logits(normed[b]));
        memcpy(to + ((i - read) * count + b) * VOCABULARY, of_sum, VOCABULARY * sizeof *to);
      }
    }
  }

  // From gradients of a tile's logits: adds the unembedding's, and writes those of the norm.
  INLINE void unembed_back(const float (*d_logits)[TOKENS], const float (*normed)[D],
                           float (*dn)[D]) {
    for (int c = 0; c < D; c += UNIT) {
      for (int b = 0; b < TILE; b += 4) {
        Unit sums[4];
        for (int t = 0; t < VOCABULARY; t++) {
          Unit weight(table.unembed[t] + c);
#pragma GCC unroll 4
          for (int m = 0; m < 4; m++) sums[m] = sums[m] + d_logits[b + m][t] * weight;
        }
        for (int m = 0; m < 4; m++) store(dn[b + m] + c, sums[m]);
      }
      for (int t = 0; t < VOCABULARY; t += 4) {
        Unit sums[4];
        for (int m = 0; m < 4; m++) sums[m] = Unit(gradient.unembed[t + m] + c);
        for (int b = 0; b < TILE; b++) {
          Unit row(normed[b] + c);
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
    alignas(64) float normed[TILE][D], dn[TILE][D], scale[TILE], d_logits[TILE][TOKENS] = {};
    uint64_t wrong = 0;
    const float share = 1.f / (count * (length - read));
    Tokens d_bias(gradient.unembed_bias);
    memset(g[first_query(0)], 0, (length - first_query(0)) * sizeof g[0]);
    for (int i = read; i < length; i++) {
      for (int b = 0; b < TILE; b += LANES) normalise(x[i][b], normed[b], scale + b);
      float product = 1;  // of up to 16 sums of powers, each at most 12: one logarithm for all
      for (int b = 0; b < valid; b++) {
        Tokens z = logits(normed[b]);
        int answer = target[(i - read) * count + b];
        store(d_logits[b], z);
        float own = d_logits[b][answer], top = largest(z);
        Tokens power = Tokens::by_vector([&](int u) { return exponential(z.v[u] - top); });
        float sum_of_powers = sum(power);
        product *= sum_of_powers;
        totals[0] += top - own;
        if (b % 16 == 15 || b == valid - 1) {
          totals[0] += __builtin_logf(product);
          product = 1;
        }
        totals[1 + i - read] += own == top;
        wrong |= (uint64_t)(own != top) << b;
        store(d_logits[b], power * (share / sum_of_powers));
        d_logits[b][answer] -= share;
      }
      for (int b = 0; b < valid; b++) d_bias = d_bias + Tokens(d_logits[b]);
      unembed_back(d_logits, normed, dn);
      for (int b = 0; b < TILE; b += LANES) normalise_back(dn[b], normed[b], scale + b, g[i][b]);
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
