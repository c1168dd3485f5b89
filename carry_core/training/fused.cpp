// A batch of the paper's transformer (App. A) on a CPU core with AVX512-bf16: loss, gradients, logits.
//
// Products take bf16 and add up in fp32; streams, norms, softmax, loss and gradients of weights are fp32. A tile of
// 64 sums goes all the way forward and back before the next, so what is kept for the way back stays in the caches.
// Activations are [position][sum][128]. All that does not depend on the batch is fused.py's, with autograd: a norm's
// gain and shift are in the weights behind it, a dropout's scale in those around it, and layer 0's attention, which
// sees (token, position) pairs only, is tables over the pairs. With masks m of zeros and ones, there remain
//
//   norm       n = (x - mean) / sd             dx = (dn - mean(dn) - n mean(dn n)) / sd
//   product    y = W x + b                     dW = sum dy x',   db = sum dy,   dx = W' dy
//   rotary     y = x cos + (-x1, x0) sin       dx = dy cos - (-dy1, dy0) sin
//   softmax    p = exp(s) / sum exp(s)         ds = p (dp - sum p dp)
//   attention  z = sum over keys of m p v      dp = m dz v,   dv = sum over queries of m p dz
//   layer 0    x = stream + m (sum of m p vo + b), where p is of scores, looked up by pairs as stream and vo are
//   MLP        x += m (W_down m relu(W_up n + b) + b)
//   loss       mean of log sum exp(z) - z[target]          dz = (softmax(z) - onehot) / count
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

namespace {
constexpr int D = 128, H = 2, DH = D / H, T = 64, VOCAB = 12, TOKENS = (1 << VOCAB) - 1;
constexpr int MOST_LAYERS = 8, KEYS = 32, NEXT = T * 3 * D;  // NEXT: from a position's [k v q] to the next one's
constexpr float ROOT = 0.125f;                               // 1 / sqrt(d_head)
using bf16 = uint16_t;
using Vec = __m512;  // 16 floats; GCC and Clang give it + - * with vectors and scalars
#define INLINE inline __attribute__((always_inline))

INLINE Vec load(const float* p) { return _mm512_loadu_ps(p); }
INLINE void store(float* p, Vec x) { _mm512_storeu_ps(p, x); }
INLINE Vec load(const bf16* p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p)), 16));
}
INLINE void store(bf16* p, Vec x) { _mm256_storeu_si256((__m256i*)p, (__m256i)_mm512_cvtneps_pbh(x)); }
INLINE float sum(Vec x) { return _mm512_reduce_add_ps(x); }
INLINE Vec where(uint32_t bits, Vec x) { return _mm512_maskz_mov_ps((__mmask16)bits, x); }
INLINE Vec exponential(Vec x) {  // 2^n 2^f with |f| <= 1/2, by the series of 2^f
  x = _mm512_max_ps(x * 1.44269504f, _mm512_set1_ps(-120));
  Vec n = _mm512_roundscale_ps(x, 0), f = x - n, y = f * 1.5403530e-4f + 1.3333558e-3f;
  y = (((y * f + 9.6181291e-3f) * f + 5.5504109e-2f) * f + 2.4022651e-1f) * f + 6.9314718e-1f;
  return _mm512_scalef_ps(y * f + 1.f, n);
}

// SFC64 in eight lanes, each as numpy has it: 32 draws of 16 bits at a time.
struct Random {
  typedef uint64_t Words __attribute__((vector_size(64)));
  Words a, b, c, counter;
  __m512i threshold;
  INLINE uint32_t keep() {  // 32 bits, each 0 with probability threshold / 2^16
    Words out = a + b + counter;
    counter += 1;
    a = b ^ (b >> 11);
    b = c + (c << 3);
    c = ((c << 24) | (c >> 40)) + out;
    return _mm512_cmpge_epu16_mask((__m512i)out, threshold);
  }
};

// ---- products in bf16: the right factor is packed in words of two rows, [k / 2][128 columns][2] ----

// acc[i][j] += sum over k of A[i][k] B[k][16 j ...], four rows by 64 columns in registers; strides are in words
INLINE void accumulate(Vec acc[4][4], const uint32_t* A, long row, long step, const uint32_t* B, int words) {
  for (int k = 0; k < words; k++) {
    __m512bh b[4];
    for (int j = 0; j < 4; j++) b[j] = (__m512bh)_mm512_loadu_si512(B + k * D + 16 * j);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
      __m512bh a = (__m512bh)_mm512_set1_epi32(A[i * row + k * step]);
#pragma GCC unroll 4
      for (int j = 0; j < 4; j++) acc[i][j] = _mm512_dpbf16_ps(acc[i][j], b[j], a);
    }
  }
}

// A B for a tile's rows of A, [T][width], of which K columns count; each row's 64 columns go to f(row, column, acc)
template <class F> INLINE void product(const bf16* A, int width, int K, const uint32_t* B, F f) {
  for (int c = 0; c < D; c += 64) for (int r = 0; r < T; r += 4) {
    Vec acc[4][4] = {};
    accumulate(acc, (const uint32_t*)(A + r * width), width / 2, 1, B + c, K / 2);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) f(r + i, c, acc[i]);
  }
}

// rows of 128 columns, two by two into words: how `product` wants its right factor, and `outer` both of its
void interleave(const bf16* A, long width, int rows, uint32_t* out) {
  alignas(64) uint16_t low[32], high[32];
  for (int i = 0; i < 16; i++) low[2 * i] = i, low[2 * i + 1] = 32 + i, high[2 * i] = 16 + i, high[2 * i + 1] = 48 + i;
  __m512i lower = _mm512_load_si512(low), upper = _mm512_load_si512(high);
  for (int r = 0; r < rows; r += 2, out += D) for (int c = 0; c < D; c += 32) {
    __m512i x = _mm512_loadu_si512(A + r * width + c), y = _mm512_loadu_si512(A + (r + 1) * width + c);
    _mm512_storeu_si512(out + c, _mm512_permutex2var_epi16(x, lower, y));
    _mm512_storeu_si512(out + c + 16, _mm512_permutex2var_epi16(x, upper, y));
  }
}

void outer(const uint32_t* G, const uint32_t* X, float* W, long width) {  // W[o][i] += sum over a tile of g[o] x[i]
  for (int c = 0; c < D; c += 64) for (int o = 0; o < D; o += 4) {
    Vec acc[4][4];
    float* at = W + o * width + c;
    for (int i = 0; i < 4; i++) for (int j = 0; j < 4; j++) acc[i][j] = load(at + i * width + 16 * j);
    accumulate(acc, G + o, 1, D, X + c, T / 2);
    for (int i = 0; i < 4; i++) for (int j = 0; j < 4; j++) store(at + i * width + 16 * j, acc[i][j]);
  }
}

// ---- norm, softmax, rotary ----

template <class Out> INLINE float normalise(const float* x, Out* n) {  // a row; returns 1 / sd
  Vec v[8], total = {}, square = {};
  for (int j = 0; j < 8; j++) v[j] = load(x + 16 * j), total += v[j];
  float mean = sum(total) / D;
  for (int j = 0; j < 8; j++) v[j] -= mean, square += v[j] * v[j];
  float scale = 1 / __builtin_sqrtf(sum(square) / D + 1e-5f);
  for (int j = 0; j < 8; j++) store(n + 16 * j, v[j] * scale);
  return scale;
}
template <class In> INLINE void normalise_back(const float* gn, const In* n, float scale, float* g) {  // g += dx
  Vec total = {}, along = {};
  for (int j = 0; j < 8; j++) total += load(gn + 16 * j), along += load(gn + 16 * j) * load(n + 16 * j);
  float mean = sum(total) / D, slope = sum(along) / D;
  for (int j = 0; j < 8; j++)
    store(g + 16 * j, load(g + 16 * j) + (load(gn + 16 * j) - mean - load(n + 16 * j) * slope) * scale);
}

// Softmax over keys of scores [key][sum], then dropout: what is dropped stays with its sign turned, for the way back.
INLINE void softmax(float* p, int keys, Random& draws) {
  for (int c = 0; c < T; c += 32) {
    for (int d = c; d < c + 32; d += 16) {
      Vec top = load(p + d), total = {};
      for (int j = 1; j < keys; j++) top = _mm512_max_ps(top, load(p + j * T + d));
      for (int j = 0; j < keys; j++) {
        Vec e = exponential(load(p + j * T + d) - top);
        store(p + j * T + d, e), total += e;
      }
      for (int j = 0; j < keys; j++) store(p + j * T + d, load(p + j * T + d) / total);
    }
    for (int j = 0; j < keys; j++) {
      uint32_t dropped = ~draws.keep();
      for (int u = 0; u < 2; u++) {
        float* at = p + j * T + c + 16 * u;
        store(at, _mm512_mask_sub_ps(load(at), dropped >> 16 * u, Vec{}, load(at)));
      }
    }
  }
}
INLINE Vec kept(Vec p) { return _mm512_max_ps(p, Vec{}); }
INLINE void softmax_back(const float* p, int keys, float* d) {  // d: of what was kept and of what not, then of scores
  for (int c = 0; c < T; c += 16) {
    Vec mean = {};
    for (int j = 0; j < keys; j++) mean += kept(load(p + j * T + c)) * load(d + j * T + c);
    for (int j = 0; j < keys; j++) {
      Vec q = load(p + j * T + c);
      store(d + j * T + c, kept(q) * load(d + j * T + c) - _mm512_abs_ps(q) * mean);
    }
  }
}

INLINE float dot(const bf16* a, const bf16* b) {  // over a head
  Vec x = _mm512_dpbf16_ps(Vec{}, (__m512bh)_mm512_loadu_si512(a), (__m512bh)_mm512_loadu_si512(b));
  return sum(_mm512_dpbf16_ps(x, (__m512bh)_mm512_loadu_si512(a + 32), (__m512bh)_mm512_loadu_si512(b + 32)));
}

// ---- the model ----

struct Shape {  // as fused.py has it
  int layers, length, read, d_ff, pairs, causal;  // `read`: the first position of the loss
  const float *cosine, *sine;                     // [length][128]; sines with the sign of `turned`
};

struct Arena {  // hands out pieces of one buffer; from null it only counts
  char* at;
  template <class X> void take(X*& piece, long count) { piece = (X*)at, at += (count * sizeof(X) + 63) / 64 * 64; }
};

struct Linear {  // W x + b; sizes are multiples of 128
  int in, out;
  const float *w, *b;
  float *dw, *db;
  uint32_t *forward, *backward;  // W packed, for W x by blocks of 128 outputs, for W' g by blocks of 128 inputs
  Linear() = default;
  Linear(Arena& a, int in, int out) : in(in), out(out) {
    a.take(forward, in * out / 2), a.take(backward, in * out / 2);
  }
  void set(const float* const* p, float* const* d, bf16* half) {  // `half`: room for W in bf16
    w = p[0], b = p[1], dw = d[0], db = d[1];
    for (int i = 0; i < in * out; i += 16) store(half + i, load(w + i));
    for (int o = 0; o < out; o++)  // two inputs that lie side by side are a word already
      for (int i = 0; i < in / 2; i++) memcpy(forward + (o / D * in / 2 + i) * D + o % D, half + o * in + 2 * i, 4);
    for (int i = 0; i < in; i += D) interleave(half + i, in, out, backward + i / D * (out / 2 * D));
  }
  void learn(const bf16* g, const bf16* x, int outputs, uint32_t* gs, uint32_t* xs) {  // dw, db from a tile
    for (int i = 0; i < in; i += D) interleave(x + i, in, T, xs + i / D * (T / 2 * D));
    for (int o = 0; o < outputs; o += D) {
      interleave(g + o, out, T, gs);
      for (int i = 0; i < in; i += D) outer(gs, xs + i / D * (T / 2 * D), dw + o * in + i, in);
      for (int c = o; c < o + D; c += 16) {
        Vec total = load(db + c);
        for (int r = 0; r < T; r++) total += load(g + r * out + c);
        store(db + c, total);
      }
    }
  }
};

struct Layer {
  Linear kvq, o, up, down;           // keys, values and queries in one: the last ones are needed at few positions
  bf16 *n, *projected, *z, *n2, *h;  // kept for the way back: norms, [k v q] turned, heads' outputs, neurons
  float *scale, *pattern, *scale2;   // 1 / sd; [query][head][key][sum]
  uint32_t *kept_out, *kept_mlp;     // dropout's masks, in bits
};

struct Engine {
  Shape s;
  int P, N, F, L;  // positions, pairs, d_ff, layers
  Random random;
  Arena arena;
  Layer layer[MOST_LAYERS];
  const float *stream, *scores, *vo, *out_b, *unembed, *unembed_b;  // by pairs, or [12][128]
  float *dstream, *dscores, *dvo, *dout_b, *dunembed, *dunembed_b;
  float *x, *g, *gn, *dpattern;  // the stream and its gradient, that of a norm, those of patterns
  int* row;                      // the tile's pairs, [position][sum]
  bf16 *go, *half;               // the gradient behind a mask; a matrix
  uint32_t *gs, *xs;             // gradients and inputs, interleaved

  Engine(const Shape& shape, char* memory) : s(shape), arena{memory} {
    P = s.length, N = s.pairs, F = s.d_ff, L = s.layers;
    long rows = P * T;
    auto take = [&](auto&... pieces) { return [&, this](long count) { (arena.take(pieces, count), ...); }; };
    for (int l = 0; l < L; l++) {
      Layer& y = layer[l];
      y.kvq = Linear(arena, D, 3 * D), y.o = Linear(arena, D, D);
      y.up = Linear(arena, D, F), y.down = Linear(arena, F, D);
      take(y.n, y.n2, y.z)(rows * D), take(y.projected)(rows * 3 * D), take(y.h)(rows * F);
      take(y.scale, y.scale2)(rows), take(y.pattern)(rows * H * P), take(y.kept_out, y.kept_mlp)(rows * 4);
    }
    take(x, g)(rows * D), take(gn, go)(T * D), take(dpattern)(rows * H * P), take(row)(rows);
    take(half)(D * (F > 3 * D ? F : 3 * D)), take(gs)(T / 2 * D), take(xs)(T / 2 * F);
  }
  // p, and gradients d: of each layer W and b of [k v q], output, up and down; then those of the unembedding. In layer
  // 0 the first four are stream, scores, vo and the output's b.
  void set(const float* const* p, float* const* d) {
    for (int l = 0; l < L; l++, p += 8, d += 8) {
      Layer& y = layer[l];
      if (!l) stream = p[0], scores = p[1], vo = p[2], out_b = p[3];
      if (!l) dstream = d[0], dscores = d[1], dvo = d[2], dout_b = d[3];
      if (l) y.kvq.set(p, d, half), y.o.set(p + 2, d + 2, half);
      y.up.set(p + 4, d + 4, half), y.down.set(p + 6, d + 6, half);
    }
    unembed = p[0], unembed_b = p[1], dunembed = d[0], dunembed_b = d[1];
  }
  int from(int l) const { return l == L - 1 ? s.read : 0; }   // the first position whose query layer l needs
  int visible(int p) const { return s.causal ? p + 1 : P; }   // how many keys position p sees
  int sees(int key, int from) const { return s.causal && key > from ? key : from; }  // the first query that sees a key
  float* at(float* pattern, int query, int h, int key) const { return pattern + ((query * H + h) * P + key) * T; }

  // rotary at position p, columns c ...; the transpose, for gradients, with sign -1
  INLINE Vec turned(Vec x, int p, int c, float sign = 1) const {
    return x * load(s.cosine + p * D + c) + sign * _mm512_permute_ps(x, 0xB1) * load(s.sine + p * D + c);
  }

  // ---- layer 0's attention ----

  void look_up() {  // x = stream + m (sum over heads and keys of p W_o v + b)
    Layer& y = layer[0];
    for (int i = from(0); i < P; i++) for (int h = 0; h < H; h++) {
      for (int j = 0; j < visible(i); j++)
        for (int b = 0; b < T; b++) at(y.pattern, i, h, j)[b] = scores[(h * N + row[i * T + b]) * N + row[j * T + b]];
      softmax(at(y.pattern, i, h, 0), visible(i), random);
    }
    for (int i = from(0); i < P; i++) for (int b = 0; b < T; b++) {
      Vec out[8];
      for (int u = 0; u < 8; u++) out[u] = load(out_b + 16 * u);
      for (int h = 0; h < H; h++) for (int j = 0; j < visible(i); j++) {
        Vec w = kept(_mm512_set1_ps(at(y.pattern, i, h, j)[b]));
        for (int u = 0; u < 8; u++) out[u] += w * load(vo + (h * N + row[j * T + b]) * D + 16 * u);
      }
      long r = i * T + b;
      for (int u = 0; u < 8; u++) {
        if (u % 2 == 0) y.kept_out[r * 4 + u / 2] = random.keep();
        Vec add = where(y.kept_out[r * 4 + u / 2] >> 16 * (u % 2), out[u]);
        store(x + r * D + 16 * u, load(stream + row[r] * D + 16 * u) + add);
      }
    }
  }
  void look_up_back() {
    Layer& y = layer[0];
    alignas(64) float out[KEYS][D];  // gradients of one sum's attention output
    for (int b = 0; b < T; b++) {
      for (int i = from(0); i < P; i++) for (int c = 0; c < D; c += 16) {
        long r = i * T + b;
        float *to = dstream + row[r] * D + c, *db = dout_b + c;
        Vec here = load(g + r * D + c), passed = where(y.kept_out[r * 4 + c / 32] >> (c & 16), here);
        store(out[i] + c, passed), store(to, load(to) + here), store(db, load(db) + passed);
      }
      for (int h = 0; h < H; h++) for (int j = 0; j < P; j++) {
        long key = (h * N + row[j * T + b]) * D;
        Vec v[8], dv[8];
        for (int u = 0; u < 8; u++) v[u] = load(vo + key + 16 * u), dv[u] = load(dvo + key + 16 * u);
        for (int i = sees(j, from(0)); i < P; i++) {
          Vec w = kept(_mm512_set1_ps(at(y.pattern, i, h, j)[b])), along[2] = {};
          for (int u = 0; u < 8; u++) along[u % 2] += load(out[i] + 16 * u) * v[u], dv[u] += w * load(out[i] + 16 * u);
          at(dpattern, i, h, j)[b] = sum(along[0] + along[1]);
        }
        for (int u = 0; u < 8; u++) store(dvo + key + 16 * u, dv[u]);
      }
    }
    for (int i = from(0); i < P; i++) for (int h = 0; h < H; h++) {
      softmax_back(at(y.pattern, i, h, 0), visible(i), at(dpattern, i, h, 0));
      for (int j = 0; j < visible(i); j++)
        for (int b = 0; b < T; b++) dscores[(h * N + row[i * T + b]) * N + row[j * T + b]] += at(dpattern, i, h, j)[b];
    }
  }

  // ---- later attention, MLP, loss ----

  void add(const Linear& w, const bf16* input, float* x, uint32_t* kept) {  // x += m (W input + b)
    Random draws = random;
    product(input, w.in, w.in, w.forward, [&](int r, int c, Vec* acc) {
      for (int u = 0; u < 4; u++) {
        uint32_t& bits = kept[r * 4 + c / 32 + u / 2];
        if (u % 2 == 0) bits = draws.keep();
        float* at = x + r * D + c + 16 * u;
        store(at, load(at) + where(bits >> 16 * (u % 2), acc[u] + load(w.b + c + 16 * u)));
      }
    });
    random = draws;
  }
  void mask(const float* g, const uint32_t* kept) {  // into go
    for (int i = 0; i < T * D; i += 16) store(go + i, where(kept[i / 32] >> (i & 16), load(g + i)));
  }
  void attend(int l) {
    Layer& y = layer[l];
    for (int p = 0; p < P; p++) {
      bf16 *n = y.n + p * T * D, *to = y.projected + p * T * 3 * D;
      for (int r = 0; r < T; r++) y.scale[p * T + r] = normalise(x + (p * T + r) * D, n + r * D);
      for (int o = 0; o < (p < from(l) ? 2 * D : 3 * D); o += D)
        product(n, D, D, y.kvq.forward + o * D / 2, [&](int r, int c, Vec* acc) {
          for (int u = 0, e = c; u < 4; u++, e += 16)
            store(to + r * 3 * D + o + e, turned(acc[u] + load(y.kvq.b + o + e), p, e));
        });
    }
    for (int b = 0; b < T; b++) for (int h = 0; h < H; h++) {
      const bf16* k = y.projected + b * 3 * D + h * DH;  // of position 0; those of the next are `NEXT` further
      for (int i = from(l); i < P; i++)
        for (int j = 0; j < visible(i); j++) at(y.pattern, i, h, j)[b] = ROOT * dot(k + i * NEXT + 2 * D, k + j * NEXT);
    }
    for (int i = from(l); i < P; i++) for (int h = 0; h < H; h++) softmax(at(y.pattern, i, h, 0), visible(i), random);
    for (int b = 0; b < T; b++) for (int h = 0; h < H; h++) for (int i = from(l); i < P; i++) {
      Vec z[4] = {};
      for (int j = 0; j < visible(i); j++) {
        Vec w = kept(_mm512_set1_ps(at(y.pattern, i, h, j)[b]));
        for (int u = 0; u < 4; u++) z[u] += w * load(y.projected + j * NEXT + b * 3 * D + D + h * DH + 16 * u);
      }
      for (int u = 0; u < 4; u++) store(y.z + (i * T + b) * D + h * DH + 16 * u, z[u]);
    }
    for (int p = from(l); p < P; p++) add(y.o, y.z + p * T * D, x + p * T * D, y.kept_out + p * T * 4);
  }
  void attend_back(int l) {
    Layer& y = layer[l];
    for (int p = from(l); p < P; p++) {
      bf16* z = y.z + p * T * D;  // then its gradient
      mask(g + p * T * D, y.kept_out + p * T * 4);
      y.o.learn(go, z, D, gs, xs);
      product(go, D, D, y.o.backward, [&](int r, int c, Vec* acc) {
        for (int u = 0; u < 4; u++) store(z + r * D + c + 16 * u, acc[u]);
      });
    }
    for (int b = 0; b < T; b++) for (int h = 0; h < H; h++) for (int i = from(l); i < P; i++)
      for (int j = 0; j < visible(i); j++)
        at(dpattern, i, h, j)[b] = dot(y.z + (i * T + b) * D + h * DH, y.projected + j * NEXT + b * 3 * D + D + h * DH);
    for (int i = from(l); i < P; i++)
      for (int h = 0; h < H; h++) softmax_back(at(y.pattern, i, h, 0), visible(i), at(dpattern, i, h, 0));
    for (int b = 0; b < T; b++) for (int h = 0; h < H; h++) attend_back_head(y, from(l), b, h);
    for (int p = 0; p < P; p++) {
      int width = p < from(l) ? 2 * D : 3 * D;
      bf16 *d = y.projected + p * NEXT, *n = y.n + p * T * D;
      y.kvq.learn(d, n, width, gs, xs);
      if (p < from(l)) memset(g + p * T * D, 0, T * D * 4);
      through_norm(d, width, y.kvq, n, y.scale + p * T, g + p * T * D);
    }
  }
  void attend_back_head(Layer& y, int from, int b, int h) {  // keys, values and queries give way to their gradients
    bf16* k = y.projected + b * 3 * D + h * DH;
    alignas(64) float dq[KEYS][DH] = {};
    for (int j = 0; j < P; j++) {
      Vec ks[4], dk[4] = {}, dv[4] = {};
      for (int u = 0; u < 4; u++) ks[u] = load(k + j * NEXT + 16 * u);
      for (int i = sees(j, from); i < P; i++) {
        Vec w = kept(_mm512_set1_ps(at(y.pattern, i, h, j)[b]));
        float d = at(dpattern, i, h, j)[b] * ROOT;
        for (int u = 0; u < 4; u++) {
          dv[u] += w * load(y.z + (i * T + b) * D + h * DH + 16 * u);
          dk[u] += d * load(k + i * NEXT + 2 * D + 16 * u);
          store(dq[i] + 16 * u, load(dq[i] + 16 * u) + d * ks[u]);
        }
      }
      for (int u = 0; u < 4; u++) {
        store(k + j * NEXT + 16 * u, turned(dk[u], j, 16 * u, -1));
        store(k + j * NEXT + D + 16 * u, turned(dv[u], j, 16 * u, -1));
      }
    }
    for (int i = from; i < P; i++) for (int c = 0; c < DH; c += 16)
      store(k + i * NEXT + 2 * D + c, turned(load(dq[i] + c), i, c, -1));
  }
  // g += dx, from the gradient d of a product behind the norm n
  void through_norm(const bf16* d, int width, const Linear& w, const bf16* n, const float* scale, float* g) {
    product(d, w.out, width, w.backward, [&](int r, int c, Vec* acc) {
      for (int u = 0; u < 4; u++) store(gn + r * D + c + 16 * u, acc[u]);
    });
    for (int r = 0; r < T; r++) normalise_back(gn + r * D, n + r * D, scale[r], g + r * D);
  }
  void mlp(int l) {
    Layer& y = layer[l];
    for (int p = from(l); p < P; p++) {
      bf16 *n = y.n2 + p * T * D, *h = y.h + p * T * F;
      for (int r = 0; r < T; r++) y.scale2[p * T + r] = normalise(x + (p * T + r) * D, n + r * D);
      Random draws = random;
      for (int o = 0; o < F; o += D) product(n, D, D, y.up.forward + o * D / 2, [&](int r, int c, Vec* acc) {
        uint32_t bits = 0;
        for (int u = 0; u < 4; u++) {
          bits = u % 2 ? bits >> 16 : draws.keep();
          store(h + r * F + o + c + 16 * u, where(bits, _mm512_max_ps(acc[u] + load(y.up.b + o + c + 16 * u), Vec{})));
        }
      });
      random = draws;
      add(y.down, h, x + p * T * D, y.kept_mlp + p * T * 4);
    }
  }
  void mlp_back(int l) {
    Layer& y = layer[l];
    for (int p = from(l); p < P; p++) {
      bf16 *n = y.n2 + p * T * D, *h = y.h + p * T * F;  // h: then its gradient, which passes where h > 0
      mask(g + p * T * D, y.kept_mlp + p * T * 4);
      y.down.learn(go, h, D, gs, xs);
      for (int i = 0; i < F; i += D) product(go, D, D, y.down.backward + i * D / 2, [&](int r, int c, Vec* acc) {
        for (int u = 0; u < 4; u++) {
          bf16* at = h + r * F + i + c + 16 * u;
          __m256i was = _mm256_loadu_si256((const __m256i*)at);
          store(at, where(_mm256_test_epi16_mask(was, was), acc[u]));
        }
      });
      y.up.learn(h, n, F, gs, xs);
      through_norm(h, F, y.up, n, y.scale2 + p * T, g + p * T * D);
    }
  }
  float read_out(const float* x, float* n, float* z) {  // a row's logits z and norm n; returns 1 / sd
    float scale = normalise(x, n);
    for (int t = 0; t < VOCAB; t++) {
      Vec total = {};
      for (int c = 0; c < D; c += 16) total += load(n + c) * load(unembed + t * D + c);
      z[t] = unembed_b[t] + sum(total);
    }
    return scale;
  }
  // g from the tile's loss; adds [loss, right at each read position, all right] of its sums to `metrics`
  void loss(const int* target, long count, long first, int valid, float each, double* metrics) {
    uint64_t wrong = 0;
    memset(g + s.read * T * D, 0, (P - s.read) * T * D * 4);
    for (int i = s.read; i < P; i++) for (int b = 0; b < valid; b++) {
      alignas(64) float n[D], dn[D] = {}, z[16] = {};
      long r = (i * T + b) * D;
      float scale = read_out(x + r, n, z);
      int t = target[(i - s.read) * count + first + b];
      float top = _mm512_mask_reduce_max_ps(TOKENS, load(z)), own = z[t];
      Vec e = where(TOKENS, exponential(load(z) - top));
      float total = sum(e);
      metrics[0] += top + __builtin_logf(total) - own;
      metrics[1 + i - s.read] += own == top;
      wrong |= (uint64_t)(own != top) << b;
      store(z, e * (each / total)), z[t] -= each;
      for (int t = 0; t < VOCAB; t++) {
        dunembed_b[t] += z[t];
        for (int c = 0; c < D; c += 16) {
          store(dn + c, load(dn + c) + z[t] * load(unembed + t * D + c));
          store(dunembed + t * D + c, load(dunembed + t * D + c) + z[t] * load(n + c));
        }
      }
      normalise_back(dn, n, scale, g + r);
    }
    metrics[1 + P - s.read] += valid - __builtin_popcountll(wrong);
  }
  void logits(float* to, long count, long first, int valid) {  // [read][sum][12]
    alignas(64) float n[D];
    for (int i = s.read; i < P; i++)
      for (int b = 0; b < valid; b++) read_out(x + (i * T + b) * D, n, to + ((i - s.read) * count + first + b) * VOCAB);
  }
  void take_tile(const int* rows, long count, long first, int valid) {  // beyond the last sum that one again
    for (int p = 0; p < P; p++)
      for (int b = 0; b < T; b++) row[p * T + b] = rows[p * count + first + (b < valid ? b : valid - 1)];
  }
};
}  // namespace

extern "C" {
long workspace(const Shape* s) { return (long)Engine(*s, nullptr).arena.at; }

// Adds to d, the gradients for p, those of the mean loss over `count` sums: `rows` of pairs [position][count], targets
// [read][count]. `state`: eight lanes' words a, then b, c, counter. Adds sums to `metrics`, as `loss` does.
void step(const Shape* s, char* memory, const float* const* p, float* const* d, long count, const int* rows,
          const int* target, uint64_t* state, int threshold, double* metrics) {
  Engine e(*s, memory);
  memcpy(&e.random, state, 256);
  e.random.threshold = _mm512_set1_epi16((short)threshold);
  e.set(p, d);
  for (long at = 0; at < count; at += T) {
    int valid = count - at < T ? count - at : T;
    e.take_tile(rows, count, at, valid);
    e.look_up(), e.mlp(0);
    for (int l = 1; l < e.L; l++) e.attend(l), e.mlp(l);
    e.loss(target, count, at, valid, 1.f / (count * (e.P - s->read)), metrics);
    for (int l = e.L - 1; l > 0; l--) e.mlp_back(l), e.attend_back(l);
    e.mlp_back(0), e.look_up_back();
  }
  memcpy(state, &e.random, 256);
}

// Logits [read][count][12] without dropout, and those from the stream before the last MLP.
void predict(const Shape* s, char* memory, const float* const* p, long count, const int* rows, float* after,
             float* before) {
  Engine e(*s, memory);
  memset(&e.random, 0, sizeof e.random);  // threshold 0: all is kept
  e.set(p, (float* const*)p);  // no gradient is taken
  for (long at = 0; at < count; at += T) {
    int valid = count - at < T ? count - at : T;
    e.take_tile(rows, count, at, valid);
    e.look_up();
    for (int l = 1; l < e.L; l++) e.mlp(l - 1), e.attend(l);
    e.logits(before, count, at, valid);
    e.mlp(e.L - 1);
    e.logits(after, count, at, valid);
  }
}
}
