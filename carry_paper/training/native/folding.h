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
//   q, k, v = R (W entering + b)        scores[i, j] = q_i . k_j / sqrt(64)     vo = s^2 W_o v
//
// and back
//
//   dq_i = sum over j of dscores[i, j] k_j / 8       dk_j = sum over i of dscores[i, j] q_i / 8
//   dv = s^2 W_o' dvo                                dW_o = s^2 dvo v'
#pragma once
#include "norm.h"
#include "products.h"
#include "sizes.h"
#include "vectors.h"

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
  int layers, length, d_ff;
  int read;    // the first position that enters the loss
  int causal;  // 1 in a decoder
  int pairs;   // of token and position, a multiple of 64
  const int* token_of_pair;
  const float *cosine, *sine;                  // [length][64], as `rotated` takes them
  const float *cosine_of_pair, *sine_of_pair;  // [pairs][64]
  Parameters parameters;
};
}

namespace {
// ---- what a batch reads ----
struct Tables {
  float stream[MOST_PAIRS][D];
  float scores[HEADS * MOST_PAIRS * MOST_PAIRS];  // [head][query's pair][key's pair]
  float vo[HEADS * MOST_PAIRS][D];                // [head][key's pair]
  float out_bias[D];                              // of layer 0's attention
  float unembed[VOCABULARY][D];
  float unembed_bias[LANES];  // zeros beyond the vocabulary

  void clear(int pairs) {
    memset(stream, 0, pairs * sizeof stream[0]);
    memset(scores, 0, HEADS * pairs * pairs * sizeof scores[0]);
    memset(vo, 0, HEADS * pairs * sizeof vo[0]);
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
  alignas(64) uint32_t forward[D * MOST_NEURONS / 2], backward[D * MOST_NEURONS / 2];
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
    gradient.clear(model.pairs);
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

// C = scale A B, or C += scale A B where `add` says so. `rows` is a multiple of 4, `columns` one of
// 64; C's and B's columns are adjacent.
void multiply(float* C, long C_row, Matrix A, Matrix B, int rows, int columns, int inner,
              float scale = 1, bool add = false) {
  for (int c = 0; c < columns; c += 64)
    for (int r = 0; r < rows; r += 4) {
      Block sums[4];
      const float* a = A.start + r * A.row;
      const float* b = B.start + c;
      for (int k = 0; k < inner; k++, a += A.column, b += B.row) {
        Block row_of_b(b);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) sums[i] = sums[i] + a[i * A.row] * row_of_b;
      }
      for (int i = 0; i < 4; i++) {
        float* to = C + (r + i) * C_row + c;
        Block scaled = scale * sums[i];
        store(to, add ? Block(to) + scaled : scaled);
      }
    }
}

// Rows and columns are multiples of 16.
void transpose(float* to, long to_row, const float* from, long from_row, int rows, int columns) {
  for (int r = 0; r < rows; r += 16)
    for (int c = 0; c < columns; c += 16) {
      Vec v[16];
      for (int i = 0; i < 16; i++) v[i] = load(from + (r + i) * from_row + c);
      transpose_16(v);
      for (int i = 0; i < 16; i++) store(to + (c + i) * to_row + r, v[i]);
    }
}

// ---- linear maps ----
// Outputs `first` to `first + 15` of a linear map, packed both ways.
INLINE void pack_16(const bf16 (*rows)[MOST_NEURONS], const Linear& to, int first) {
  uint32_t* forward = to.forward + first / D * (D * to.in / 2) + first % D;
  for (int k = 0; k < to.in / 2; k += 16) {
    Vec v[16];
#pragma GCC unroll 16
    for (int r = 0; r < 16; r++) v[r] = load((const float*)rows[r] + k);
    transpose_16(v);
#pragma GCC unroll 16
    for (int r = 0; r < 16; r++) store((float*)forward + (k + r) * D, v[r]);
  }
  for (int i = 0; i < to.in; i += D)
    for (int r = 0; r < 16; r += 2) {
      uint32_t* backward = to.backward + i * to.out / 2 + (first + r) / 2 * D;
      interleave(rows[r] + i, 2, MOST_NEURONS, backward);
    }
}

// A map behind a norm becomes the outputs from `first` on of `to`.
void fold_behind_norm(const Affine& map, const Affine& norm, int outputs, const Linear& to,
                      int first = 0) {
  for (int o = 0; o < outputs; o += 16) {
    alignas(64) bf16 rows[16][MOST_NEURONS];
    Vec shifted[16];
    for (int r = 0; r < 16; r++) {
      const float* weight = map.weight.value + (o + r) * to.in;
      shifted[r] = Vec{};
      for (int i = 0; i < to.in; i += LANES) {
        Vec w = load(weight + i);
        shifted[r] += w * load(norm.bias.value + i);
        store(rows[r] + i, w * load(norm.weight.value + i));
      }
    }
    store(to.bias + first + o, load(map.bias.value + o) + sums_of_lanes(shifted));
    pack_16(rows, to, first + o);
  }
}

void fold_between_dropouts(const Affine& map, float s, const Linear& to) {
  for (int o = 0; o < to.out; o += 16) {
    alignas(64) bf16 rows[16][MOST_NEURONS];
    for (int r = 0; r < 16; r++) {
      const float* weight = map.weight.value + (o + r) * to.in;
      for (int i = 0; i < to.in; i += LANES) store(rows[r] + i, s * s * load(weight + i));
    }
    store(to.bias + o, s * load(map.bias.value + o));
    pack_16(rows, to, o);
  }
}

// The map's gradients from those of W' and b'; adds the norm's.
void unfold_behind_norm(const Affine& map, const Affine& norm, int outputs, const float* d_weight,
                        const float* d_bias) {
  memcpy(map.bias.gradient, d_bias, outputs * sizeof d_bias[0]);
  for (int i = 0; i < D; i += 64) {
    Block gain(norm.weight.value + i), shift(norm.bias.value + i);
    Block d_gain(norm.weight.gradient + i), d_shift(norm.bias.gradient + i);
    for (int o = 0; o < outputs; o++) {
      Block weight(map.weight.value + o * D + i), d_folded(d_weight + o * D + i);
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
constexpr float SCORE_SCALE = 0.125f;   // 1 / sqrt(D_HEAD)

// Rotates a pair's queries, keys and values, or with `sign` -1 their gradients back.
INLINE void rotate(const Model& model, float* qkv, int pair, float sign) {
  const float* cosine = model.cosine_of_pair + pair * D_HEAD;
  const float* sine = model.sine_of_pair + pair * D_HEAD;
  for (int c = 0; c < 3 * D; c += D_HEAD)
    store(qkv + c, rotated(Block(qkv + c), cosine, sine, sign));
}

void fold_first_attention(const Model& model, float s, Folded& to) {
  const BlockParameters& block = model.parameters.blocks[0];
  const Affine* projections[] = {&block.q, &block.k, &block.v};
  FirstAttention& first = to.first;
  Tables& table = to.table;
  const int pairs = model.pairs;
  alignas(64) static thread_local float transposed[D * 3 * D], keys[D_HEAD * MOST_PAIRS];

  for (int pair = 0; pair < pairs; pair++) {
    const float* embedding = model.parameters.embed.weight.value + model.token_of_pair[pair] * D;
    store(table.stream[pair], ROOT * Row(embedding));
  }
  for (int pair = 0; pair < pairs; pair += 16)
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
  for (int h = 0; h < HEADS; h++) {
    const float* q = first.qkv[0] + h * D_HEAD;
    const float *k = q + D, *v = k + D;
    transpose(keys, MOST_PAIRS, k, 3 * D, pairs, D_HEAD);
    multiply(table.scores + h * pairs * pairs, pairs, {q, 3 * D}, {keys, MOST_PAIRS}, pairs, pairs,
             D_HEAD, SCORE_SCALE);
    multiply(table.vo[h * pairs], D, {v, 3 * D}, {transposed + h * D_HEAD * D, D}, pairs, D,
             D_HEAD, s * s);
  }
  store(table.out_bias, s * Row(block.o.bias.value));
}

// Gradients of queries, keys and values, [pairs][3 * 128], and of the output projection.
void unfold_heads(const Model& model, float s, const Folded& from, float* d_qkv) {
  const BlockParameters& block = model.parameters.blocks[0];
  const int pairs = model.pairs;
  for (int h = 0; h < HEADS; h++) {
    const float* q = from.first.qkv[0] + h * D_HEAD;
    const float *k = q + D, *v = k + D;
    float* dq = d_qkv + h * D_HEAD;
    float *dk = dq + D, *dv = dk + D;
    Matrix d_scores{from.gradient.scores + h * pairs * pairs, pairs};
    Matrix d_vo{from.gradient.vo[h * pairs], D};
    Matrix weight{block.o.weight.value + h * D_HEAD, D};
    float* d_weight = block.o.weight.gradient + h * D_HEAD;
    multiply(dv, 3 * D, d_vo, weight, pairs, D_HEAD, D, s * s);
    multiply(d_weight, D, d_vo.transposed(), {v, 3 * D}, D, D_HEAD, pairs, s * s);
    multiply(dq, 3 * D, d_scores, {k, 3 * D}, pairs, D_HEAD, pairs, SCORE_SCALE);
    multiply(dk, 3 * D, d_scores.transposed(), {q, 3 * D}, pairs, D_HEAD, pairs, SCORE_SCALE);
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
  for (int pair = 0; pair < pairs; pair += 16)
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
  memset(to.table.unembed_bias, 0, sizeof to.table.unembed_bias);
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
