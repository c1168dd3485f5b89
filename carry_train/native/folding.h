// From the model's parameters to the tables and matrices that a batch reads, and from the gradients
// of those to the parameters' own. Nothing here depends on the batch.
//
// With a dropout's scale s (1 in a test), `gain` and `shift` of a norm, and R the rotary embedding
// of a pair's position:
//
//   behind a norm       W' = W diag(gain)                 b' = b + W shift
//     and back          dW = dW' diag(gain) + db' shift'  db = db'
//                       d_gain = sum over rows of W dW'   d_shift = W' db'
//   between dropouts    W' = s^2 W,  b' = s b             dW = s^2 dW',  db = s db'
//
// Layer 0's attention sees pairs of a token and a position, and nothing else, so it is tables:
//
//   stream = sqrt(128) embed[token]     entering = normalised(stream) gain + shift
//   q, k, v = R (W entering + b)        scores[i, j] = q_i . k_j / sqrt(d_head)     vo = s^2 W_o v
//
// and back
//
//   dq_i = sum over j of dscores[i, j] k_j / sqrt(d_head)     dv = s^2 W_o' dvo
//   dk_j = sum over i of dscores[i, j] q_i / sqrt(d_head)     dW_o = s^2 dvo v'
#pragma once
#include "norm.h"
#include "products.h"

// ---- what fused.py fills in ----
extern "C" {
struct Parameter {
  const float* value;
  float* gradient;
};
struct Affine {  // a linear map, a norm's gain and shift, or the embedding, which has no bias
  Parameter weight, bias;
};
struct BlockParameters {
  Affine norm, q, k, v, o, up, down;
};
struct Parameters {
  Affine embed;
  BlockParameters blocks[MOST_LAYERS];
  Affine norm, unembed;
};
struct Model {
  int layers, heads, length, d_ff;
  int read;    // the first position that enters the loss
  int causal;  // 1 in a decoder
  int pairs;   // of token and position, a multiple of 64
  const int* token_of_pair;
  const float *cosine, *sine;                  // [length][128], as `rotated` takes them
  const float *cosine_of_pair, *sine_of_pair;  // [pairs][128]
  Parameters parameters;

  int d_head() const { return D / heads; }
  float score_scale() const { return 1 / __builtin_sqrtf(d_head()); }
};
}

namespace {
// ---- what a batch reads ----
struct Tables {
  float stream[MOST_PAIRS][D];
  float scores[MOST_HEADS * MOST_PAIRS * MOST_PAIRS];  // [head][query's pair][key's pair]
  float vo[MOST_HEADS * MOST_PAIRS][D];                // [head][key's pair]
  float out_bias[D];                                   // of layer 0's attention
  float unembed[VOCABULARY][D];
  float unembed_bias[TOKENS];  // minus infinity beyond the vocabulary

  void clear(const Model& model) {
    const int pairs = model.pairs;
    memset(stream, 0, pairs * sizeof stream[0]);
    memset(scores, 0, model.heads * pairs * pairs * sizeof scores[0]);
    memset(vo, 0, model.heads * pairs * sizeof vo[0]);
    memset(out_bias, 0, sizeof out_bias);
    memset(unembed, 0, sizeof unembed);
    memset(unembed_bias, 0, sizeof unembed_bias);
  }
};

enum { KEY, VALUE = D, QUERY = 2 * D };  // columns of a later layer's joint projection

struct LayerMaps {
  Linear projection;  // keys, values, queries; layer 0 has tables in place of this and the next
  Linear output, up, down;
};

struct LinearMemory {
  alignas(64) Word forward[D * MOST_NEURONS / NUMBERS], backward[D * MOST_NEURONS / NUMBERS];
  float bias[MOST_NEURONS], d_weight[D * MOST_NEURONS], d_bias[MOST_NEURONS];

  Linear linear(int in, int out) { return {in, out, forward, backward, bias, d_weight, d_bias}; }
};

// Layer 0's attention over the pairs, as the way back needs it.
struct FirstAttention {
  alignas(64) float normed[MOST_PAIRS][D];
  float scale[MOST_PAIRS];        // 1 / sd
  float entering[MOST_PAIRS][D];  // with the norm's gain and shift
  float qkv[MOST_PAIRS][3 * D];   // queries, keys, values; rotated
};

struct Folded {
  alignas(64) Tables table, gradient;
  LayerMaps maps[MOST_LAYERS];
  FirstAttention first;
  LinearMemory memory[MOST_LAYERS][4];

  explicit Folded(const Model& model) {
    for (int l = 0; l < model.layers; l++) {
      maps[l].projection = memory[l][0].linear(D, 3 * D);
      maps[l].output = memory[l][1].linear(D, D);
      maps[l].up = memory[l][2].linear(D, model.d_ff);
      maps[l].down = memory[l][3].linear(model.d_ff, D);
    }
  }
  void clear_gradients(const Model& model) {
    gradient.clear(model);
    for (int l = 0; l < model.layers; l++)
      for (const Linear* map : {&maps[l].projection, &maps[l].output, &maps[l].up, &maps[l].down}) {
        memset(map->d_weight, 0, map->in * map->out * sizeof map->d_weight[0]);
        memset(map->d_bias, 0, map->out * sizeof map->d_bias[0]);
      }
  }
};

// ---- small matrices in float ----
struct Matrix {
  const float* start;
  long row, column = 1;  // from a row to the next, and from a column

  Matrix transposed() const { return {start, column, row}; }
};

// Some columns of `multiply`, the first `lanes` of each vector, for N rows of C and A.
template <int N, int VECTORS>
INLINE void multiply_rows(float* C, long C_row, Matrix A, Matrix B, int lanes, int inner,
                          float scale, bool add) {
  using Columns = Vecs<VECTORS>;
  Columns sums[N];
  const float *a = A.start, *b = B.start;
  for (int k = 0; k < inner; k++, a += A.column, b += B.row) {
    Columns row_of_b = Columns::by_vector([&](int u) { return load(b + LANES * u, lanes); });
#pragma GCC unroll 6
    for (int i = 0; i < N; i++) sums[i] = sums[i] + a[i * A.row] * row_of_b;
  }
  for (int i = 0; i < N; i++)
    for (int u = 0; u < VECTORS; u++) {
      float* to = C + i * C_row + LANES * u;
      Vec scaled = scale * sums[i].v[u];
      store(to, add ? load(to, lanes) + scaled : scaled, lanes);
    }
}

// C = scale A B, or C += scale A B where `add` says so. `rows` is a multiple of 4; C's and B's
// columns are adjacent.
void multiply(float* C, long C_row, Matrix A, Matrix B, int rows, int columns, int inner,
              float scale = 1, bool add = false) {
  for (int c = 0; c < columns;) {
    const int lanes = columns - c < LANES ? columns - c : LANES;
    const bool is_unit = columns - c >= UNIT;
    const Matrix B_columns{B.start + c, B.row};
    for (int r = 0; r < rows; r += 4) {
      float* to = C + r * C_row + c;
      const Matrix A_rows{A.start + r * A.row, A.row, A.column};
      if (is_unit)
        multiply_rows<4, UNIT_VECTORS>(to, C_row, A_rows, B_columns, LANES, inner, scale, add);
      else
        multiply_rows<4, 1>(to, C_row, A_rows, B_columns, lanes, inner, scale, add);
    }
    c += is_unit ? UNIT : lanes;
  }
}

// Rows and columns are multiples of 16, but the last columns may be fewer than a vector's.
void transpose(float* to, long to_row, const float* from, long from_row, int rows, int columns) {
  for (int r = 0; r < rows; r += LANES)
    for (int c = 0; c < columns; c += LANES) {
      const int lanes = columns - c < LANES ? columns - c : LANES;
      Vec v[LANES];
      for (int i = 0; i < LANES; i++) v[i] = load(from + (r + i) * from_row + c, lanes);
      transpose(v);
      for (int i = 0; i < lanes; i++) store(to + (c + i) * to_row + r, v[i]);
    }
}

// ---- linear maps ----
using PackedRow = Number[padded(MOST_NEURONS)];  // of weights, before they are packed

// The outputs from `first` on, as many as a vector has lanes, of a linear map, packed both ways.
INLINE void pack(const PackedRow* rows, const Linear& to, int first) {
  Word* forward = to.forward + (long)(first / UNIT) * (to.in / NUMBERS) * UNIT + first % UNIT;
  for (int k = 0; k < to.in / NUMBERS; k += LANES) {
    Vec v[LANES];
#pragma GCC unroll 16
    for (int r = 0; r < LANES; r++) v[r] = load((const float*)rows[r] + k);
    transpose(v);
#pragma GCC unroll 16
    for (int r = 0; r < LANES; r++) store((float*)forward + (k + r) * UNIT, v[r]);
  }
  for (int i = 0; i < to.in; i += UNIT) {
    Word* backward = to.backward + (long)(i * to.out + first * UNIT) / NUMBERS;
    interleave(rows[0] + i, LANES, padded(MOST_NEURONS), UNIT, backward, UNIT);
  }
}

// A map behind a norm becomes the outputs from `first` on of `to`.
void fold_behind_norm(const Affine& map, const Affine& norm, int outputs, const Linear& to,
                      int first = 0) {
  for (int o = 0; o < outputs; o += LANES) {
    alignas(64) PackedRow rows[LANES];
    Vec shifted[LANES];
    for (int r = 0; r < LANES; r++) {
      const float* weight = map.weight.value + (o + r) * to.in;
      shifted[r] = Vec{};
      for (int i = 0; i < to.in; i += LANES) {
        Vec w = load(weight + i);
        shifted[r] += w * load(norm.bias.value + i);
        store(rows[r] + i, w * load(norm.weight.value + i));
      }
    }
    store(to.bias + first + o, load(map.bias.value + o) + sums_of_lanes(shifted));
    pack(rows, to, first + o);
  }
}

void fold_between_dropouts(const Affine& map, float s, const Linear& to) {
  for (int o = 0; o < to.out; o += LANES) {
    alignas(64) PackedRow rows[LANES];
    for (int r = 0; r < LANES; r++) {
      const float* weight = map.weight.value + (o + r) * to.in;
      for (int i = 0; i < to.in; i += LANES) store(rows[r] + i, s * s * load(weight + i));
    }
    store(to.bias + o, s * load(map.bias.value + o));
    pack(rows, to, o);
  }
}

// The map's gradients from those of W' and b'; adds the norm's.
void unfold_behind_norm(const Affine& map, const Affine& norm, int outputs, const float* d_weight,
                        const float* d_bias) {
  memcpy(map.bias.gradient, d_bias, outputs * sizeof d_bias[0]);
  for (int i = 0; i < D; i += UNIT) {
    Unit gain(norm.weight.value + i), shift(norm.bias.value + i);
    Unit d_gain(norm.weight.gradient + i), d_shift(norm.bias.gradient + i);
    for (int o = 0; o < outputs; o++) {
      Unit weight(map.weight.value + o * D + i), d_folded(d_weight + o * D + i);
      d_gain = d_gain + weight * d_folded;
      d_shift = d_shift + d_bias[o] * weight;
      store(map.weight.gradient + o * D + i, d_folded * gain + d_bias[o] * shift);
    }
    store(norm.weight.gradient + i, d_gain);
    store(norm.bias.gradient + i, d_shift);
  }
}

void unfold_between_dropouts(const Affine& map, float s, const Linear& from) {
  for (int x = 0; x < from.in * from.out; x += LANES)
    store(map.weight.gradient + x, s * s * load(from.d_weight + x));
  for (int o = 0; o < from.out; o += LANES)
    store(map.bias.gradient + o, s * load(from.d_bias + o));
}

// ---- layer 0's attention ----
const float ROOT = __builtin_sqrtf(D);  // the embedding's scale

// Rotates a pair's queries, keys and values, or with `sign` -1 their gradients back.
INLINE void rotate(const Model& model, float* qkv, int pair, float sign) {
  const float* cosine = model.cosine_of_pair + pair * D;
  const float* sine = model.sine_of_pair + pair * D;
  for (int c = 0; c < 3 * D; c += D)
    store(qkv + c, rotated(Row(qkv + c), cosine, sine, sign));
}

void fold_first_attention(const Model& model, float s, Folded& to) {
  const BlockParameters& block = model.parameters.blocks[0];
  const Affine* projections[] = {&block.q, &block.k, &block.v};
  FirstAttention& first = to.first;
  Tables& table = to.table;
  const int pairs = model.pairs;
  const int d_head = model.d_head();
  alignas(64) static thread_local float transposed[D * 3 * D], keys[D * MOST_PAIRS];

  for (int pair = 0; pair < pairs; pair++) {
    const float* embedding = model.parameters.embed.weight.value + model.token_of_pair[pair] * D;
    store(table.stream[pair], ROOT * Row(embedding));
  }
  for (int pair = 0; pair < pairs; pair += LANES)
    normalise(table.stream[pair], first.normed[pair], first.scale + pair);
  Row gain(block.norm.weight.value), shift(block.norm.bias.value);
  for (int pair = 0; pair < pairs; pair++)
    store(first.entering[pair], Row(first.normed[pair]) * gain + shift);

  for (int x = 0; x < 3; x++)
    transpose(transposed + x * D, 3 * D, projections[x]->weight.value, D, D, D);
  multiply(first.qkv[0], 3 * D, {first.entering[0], D}, {transposed, 3 * D}, pairs, 3 * D, D);
  for (int pair = 0; pair < pairs; pair++) {
    for (int x = 0; x < 3; x++) {
      float* to = first.qkv[pair] + x * D;
      store(to, Row(to) + Row(projections[x]->bias.value));
    }
    rotate(model, first.qkv[pair], pair, 1);
  }

  transpose(transposed, D, block.o.weight.value, D, D, D);
  for (int h = 0; h < model.heads; h++) {
    const float* q = first.qkv[0] + h * d_head;
    const float *k = q + D, *v = k + D;
    transpose(keys, MOST_PAIRS, k, 3 * D, pairs, d_head);
    multiply(table.scores + h * pairs * pairs, pairs, {q, 3 * D}, {keys, MOST_PAIRS}, pairs, pairs,
             d_head, model.score_scale());
    multiply(table.vo[h * pairs], D, {v, 3 * D}, {transposed + h * d_head * D, D}, pairs, D,
             d_head, s * s);
  }
  store(table.out_bias, s * Row(block.o.bias.value));
}

// Gradients of queries, keys and values, [pairs][3 * 128], and of the output projection.
void unfold_heads(const Model& model, float s, const Folded& from, float* d_qkv) {
  const BlockParameters& block = model.parameters.blocks[0];
  const int pairs = model.pairs, d_head = model.d_head();
  const float scale = model.score_scale();
  for (int h = 0; h < model.heads; h++) {
    const float* q = from.first.qkv[0] + h * d_head;
    const float *k = q + D, *v = k + D;
    float* dq = d_qkv + h * d_head;
    float *dk = dq + D, *dv = dk + D;
    Matrix d_scores{from.gradient.scores + h * pairs * pairs, pairs};
    Matrix d_vo{from.gradient.vo[h * pairs], D};
    Matrix weight{block.o.weight.value + h * d_head, D};
    float* d_weight = block.o.weight.gradient + h * d_head;
    multiply(dv, 3 * D, d_vo, weight, pairs, d_head, D, s * s);
    multiply(d_weight, D, d_vo.transposed(), {v, 3 * D}, D, d_head, pairs, s * s);
    multiply(dq, 3 * D, d_scores, {k, 3 * D}, pairs, d_head, pairs, scale);
    multiply(dk, 3 * D, d_scores.transposed(), {q, 3 * D}, pairs, d_head, pairs, scale);
  }
  for (int pair = 0; pair < pairs; pair++) rotate(model, d_qkv + pair * 3 * D, pair, -1);
  store(block.o.bias.gradient, s * Row(from.gradient.out_bias));
}

void unfold_first_attention(const Model& model, float s, Folded& from) {
  const BlockParameters& block = model.parameters.blocks[0];
  const Affine* projections[] = {&block.q, &block.k, &block.v};
  const int pairs = model.pairs;
  alignas(64) static thread_local float d_qkv[MOST_PAIRS][3 * D], d_entering[MOST_PAIRS][D];
  unfold_heads(model, s, from, d_qkv[0]);

  for (int x = 0; x < 3; x++) {
    const Affine& map = *projections[x];
    Matrix d_map{d_qkv[0] + x * D, 3 * D};
    multiply(map.weight.gradient, D, d_map.transposed(), {from.first.entering[0], D}, D, D, pairs);
    multiply(d_entering[0], D, d_map, {map.weight.value, D}, pairs, D, D, 1, x > 0);
    Row d_bias;
    for (int pair = 0; pair < pairs; pair++) d_bias = d_bias + Row(d_qkv[pair] + x * D);
    store(map.bias.gradient, d_bias);
  }

  Row gain(block.norm.weight.value);
  Row d_gain(block.norm.weight.gradient), d_shift(block.norm.bias.gradient);
  for (int pair = 0; pair < pairs; pair++) {
    Row d_row(d_entering[pair]);
    d_gain = d_gain + d_row * Row(from.first.normed[pair]);
    d_shift = d_shift + d_row;
    store(d_entering[pair], d_row * gain);
  }
  store(block.norm.weight.gradient, d_gain);
  store(block.norm.bias.gradient, d_shift);

  float* d_embedding = model.parameters.embed.weight.gradient;
  memset(d_embedding, 0, VOCABULARY * D * sizeof d_embedding[0]);
  for (int pair = 0; pair < pairs; pair += LANES)
    normalise_back(d_entering[pair], from.first.normed[pair], from.first.scale + pair,
                   from.gradient.stream[pair]);
  for (int pair = 0; pair < pairs; pair++) {
    float* to = d_embedding + model.token_of_pair[pair] * D;
    store(to, Row(to) + ROOT * Row(from.gradient.stream[pair]));
  }
}

// ---- the whole model ----
void fold(const Model& model, float s, Folded& to) {
  const Parameters& parameters = model.parameters;
  fold_first_attention(model, s, to);
  for (int l = 0; l < model.layers; l++) {
    const BlockParameters& block = parameters.blocks[l];
    const LayerMaps& maps = to.maps[l];
    if (l > 0) {
      fold_behind_norm(block.k, block.norm, D, maps.projection, KEY);
      fold_behind_norm(block.v, block.norm, D, maps.projection, VALUE);
      fold_behind_norm(block.q, block.norm, D, maps.projection, QUERY);
      fold_between_dropouts(block.o, s, maps.output);
    }
    fold_behind_norm(block.up, block.norm, model.d_ff, maps.up);
    fold_between_dropouts(block.down, s, maps.down);
  }
  for (float& bias : to.table.unembed_bias) bias = -__builtin_inff();
  for (int token = 0; token < VOCABULARY; token++) {
    Row weight(parameters.unembed.weight.value + token * D);
    store(to.table.unembed[token], weight * Row(parameters.norm.weight.value));
    float shifted = sum(weight * Row(parameters.norm.bias.value));
    to.table.unembed_bias[token] = parameters.unembed.bias.value[token] + shifted;
  }
}

// Writes all gradients of the parameters.
void unfold(const Model& model, float s, Folded& from) {
  const Parameters& parameters = model.parameters;
  auto clear = [](const Affine& norm) {
    store(norm.weight.gradient, Row());
    store(norm.bias.gradient, Row());
  };
  for (int l = 0; l < model.layers; l++) {
    const BlockParameters& block = parameters.blocks[l];
    const LayerMaps& maps = from.maps[l];
    clear(block.norm);
    if (l > 0) {
      auto unfold_projection = [&](const Affine& map, int first) {
        unfold_behind_norm(map, block.norm, D, maps.projection.d_weight + first * D,
                           maps.projection.d_bias + first);
      };
      unfold_projection(block.k, KEY);
      unfold_projection(block.v, VALUE);
      unfold_projection(block.q, QUERY);
      unfold_between_dropouts(block.o, s, maps.output);
    }
    unfold_behind_norm(block.up, block.norm, model.d_ff, maps.up.d_weight, maps.up.d_bias);
    unfold_between_dropouts(block.down, s, maps.down);
  }
  unfold_first_attention(model, s, from);
  clear(parameters.norm);
  unfold_behind_norm(parameters.unembed, parameters.norm, VOCABULARY, from.gradient.unembed[0],
                     from.gradient.unembed_bias);
}
}  // namespace
