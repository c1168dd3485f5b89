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
#include <sys/syscall.h>
#include <unistd.h>
#include <memory>

namespace {
constexpr int D = 128, H = 2, DH = D / H, VOCAB = 12;  // d_model, heads, d_head, tokens
constexpr int T = 64;                                  // sums in a tile
constexpr int P = 31, F = 1024, L = 3;                 // at most so many positions, neurons, layers
using bf16 = uint16_t;
#define INLINE inline __attribute__((always_inline))

// ---- vectors: of 16 floats, and of N times as many ----

using Vec = __m512;  // GCC and Clang give it + - * with vectors and scalars
INLINE Vec load(const float* p) { return _mm512_loadu_ps(p); }
INLINE Vec load(const bf16* p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p)), 16));
}
INLINE void store(float* p, Vec x) { _mm512_storeu_ps(p, x); }
INLINE void store(bf16* p, Vec x) { _mm256_storeu_si256((__m256i*)p, (__m256i)_mm512_cvtneps_pbh(x)); }
INLINE Vec positive(Vec x) { return _mm512_max_ps(x, Vec{}); }
INLINE Vec exponential(Vec x) {  // 2^n 2^f with |f| <= 1/2, by the series of 2^f
  x = _mm512_max_ps(x * 1.44269504f, _mm512_set1_ps(-120));
  Vec n = _mm512_roundscale_ps(x, 0), f = x - n, y = f * 1.5403530e-4f + 1.3333558e-3f;
  y = (((y * f + 9.6181291e-3f) * f + 5.5504109e-2f) * f + 2.4022651e-1f) * f + 6.9314718e-1f;
  return _mm512_scalef_ps(y * f + 1.f, n);
}

template <int N> struct Vecs {
  Vec v[N];
  template <class F> INLINE static Vecs each(F f) {
    Vecs x;
    for (int u = 0; u < N; u++) x.v[u] = f(u);
    return x;
  }
  INLINE friend Vecs operator+(Vecs a, Vecs b) { return each([&](int u) { return a.v[u] + b.v[u]; }); }
  INLINE friend Vecs operator-(Vecs a, Vecs b) { return each([&](int u) { return a.v[u] - b.v[u]; }); }
  INLINE friend Vecs operator*(float a, Vecs b) { return each([&](int u) { return a * b.v[u]; }); }
};
using Row = Vecs<8>;    // of the stream
using Block = Vecs<4>;  // 64 columns of it: a product's unit, and a head
template <int N, class X> INLINE Vecs<N> load(const X* p) {
  return Vecs<N>::each([&](int u) { return load(p + 16 * u); });
}
template <int N, class X> INLINE void store(X* p, Vecs<N> x) {
  for (int u = 0; u < N; u++) store(p + 16 * u, x.v[u]);
}
template <int N> INLINE Vecs<N> where(const uint32_t* bits, Vecs<N> x) {  // 32 columns a word
  return Vecs<N>::each([&](int u) { return _mm512_maskz_mov_ps(bits[u / 2] >> 16 * (u % 2), x.v[u]); });
}
template <int chains = 1, int N> INLINE float dot(Vecs<N> a, Vecs<N> b) {  // two chains wait half as long
  Vec total[2] = {};
  for (int u = 0; u < N; u++) total[u % chains] += a.v[u] * b.v[u];
  return _mm512_reduce_add_ps(total[0] + total[1]);
}
INLINE Row mean(Row x) {
  float total = dot(x, Row::each([](int) { return Vec{} + 1.f; }));
  return Row::each([&](int) { return Vec{} + total / D; });
}
INLINE float dot(const bf16* a, const bf16* b) {  // over a head
  Vec x = _mm512_dpbf16_ps(Vec{}, (__m512bh)_mm512_loadu_si512(a), (__m512bh)_mm512_loadu_si512(b));
  x = _mm512_dpbf16_ps(x, (__m512bh)_mm512_loadu_si512(a + 32), (__m512bh)_mm512_loadu_si512(b + 32));
  return _mm512_reduce_add_ps(x);
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

#ifdef __AMX_BF16__
const bool has_tiles = syscall(SYS_arch_prctl, 0x1023, 18) == 0;  // the system lends these registers to who asks
struct Tiles {  // eight of 16 rows of 64 bytes; afterwards they are as they were, which oneDNN counts on
  alignas(64) uint8_t before[64], now[64] = {1};
  Tiles() {
    for (int i = 0; i < 8; i++) now[16 + 2 * i] = 64, now[48 + i] = 16;
    if (has_tiles) _tile_storeconfig(before), _tile_loadconfig(now);
  }
  ~Tiles() { if (has_tiles) before[0] ? _tile_loadconfig(before) : _tile_release(); }
};
#define EACH(DO) { DO(0, 0, 0) DO(1, 0, 1) DO(2, 1, 0) DO(3, 1, 1) }  // a tile of C, and where it stands
#define ZERO(t, i, j) _tile_zero(t);
#define LOAD(t, i, j) _tile_loadd(t, C + 16 * i * row + 16 * j, 4 * row);
#define STORE(t, i, j) _tile_stored(t, C + 16 * i * row + 16 * j, 4 * row);
#else
struct Tiles { Tiles() {} };
#endif

// 32 rows and 64 columns of C = A B, or of C += A B
INLINE void multiply(float* C, long row, bool add, const bf16* A, long width, const uint32_t* B, int K) {
#ifdef __AMX_BF16__
  if (has_tiles) {
    asm volatile("" ::: "memory");  // GCC does not know that loads of tiles read memory
    for (int c = 0; c < 64; c += 32, C += 32, B += 32) {
      if (add) EACH(LOAD) else EACH(ZERO)
      for (int k = 0; k < K; k += 32) {
        _tile_loadd(4, A + k, 2 * width);
        _tile_loadd(6, B + k / 2 * D, 4 * D);
        _tile_loadd(7, B + k / 2 * D + 16, 4 * D);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, A + 16 * width + k, 2 * width);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
      }
      EACH(STORE)
    }
    return;
  }
#endif
  for (int r = 0; r < 32; r += 4, A += 4 * width, C += 4 * row) {  // four rows in registers
    Block acc[4] = {};
    for (int i = 0; add && i < 4; i++) acc[i] = load<4>(C + i * row);
    for (int k = 0; k < K / 2; k++) {
      __m512bh b[4];
      for (int j = 0; j < 4; j++) b[j] = (__m512bh)_mm512_loadu_si512(B + k * D + 16 * j);
#pragma GCC unroll 4
      for (int i = 0; i < 4; i++) {
        __m512bh a = (__m512bh)_mm512_set1_epi32(*(const uint32_t*)(A + i * width + 2 * k));
        acc[i] = Block::each([&](int j) { return _mm512_dpbf16_ps(acc[i].v[j], b[j], a); });
      }
    }
    for (int i = 0; i < 4; i++) store(C + i * row, acc[i]);
  }
}
// A B for a tile's rows of A, [T][width], of which K columns count; each row's 64 columns go to f(row, column, columns)
template <class F> INLINE void product(const bf16* A, int width, int K, const uint32_t* B, int columns, F f) {
  alignas(64) float C[32][64];
  for (int c = 0; c < columns; c += 64) for (int r = 0; r < T; r += 32) {
    multiply(C[0], 64, false, A + r * width, width, B + c / D * D * K / 2 + c % D, K);
    for (int i = 0; i < 32; i++) f(r + i, c, load<4>(C[i]));
  }
}
void interleave(const bf16* A, long width, uint32_t* __restrict out) {  // a tile's rows of 128 columns, two by two
  for (int r = 0; r < T; r += 2)
    for (int c = 0; c < D; c++) *out++ = A[r * width + c] | A[(r + 1) * width + c] << 16;
}
void transpose(const bf16* A, long width, uint32_t* out) {  // 128 columns of a tile, as rows
  alignas(64) uint32_t pairs[T / 2][D];
  interleave(A, width, pairs[0]);
  const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  for (int r = 0; r < T / 2; r += 16) for (int c = 0; c < D; c += 16) {  // by exchanges of 1, 2, 4, 8 rows with columns
    __m512i v[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) v[i] = _mm512_load_si512(&pairs[r + i][c]);
#pragma GCC unroll 4
    for (int step = 1; step < 16; step *= 2) {
      __mmask16 odd = _mm512_test_epi32_mask(lane, _mm512_set1_epi32(step));
      __m512i next = _mm512_add_epi32(lane, _mm512_set1_epi32(step));
      __m512i here = _mm512_mask_add_epi32(lane, odd, lane, _mm512_set1_epi32(16 - step));
      __m512i there = _mm512_mask_add_epi32(next, odd, lane, _mm512_set1_epi32(16));
#pragma GCC unroll 16
      for (int i = 0; i < 16; i++) if (!(i & step)) {
        __m512i a = v[i], b = v[i + step];
        v[i] = _mm512_permutex2var_epi32(a, here, b), v[i + step] = _mm512_permutex2var_epi32(a, there, b);
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) _mm512_store_si512(out + (c + i) * T / 2 + r, v[i]);
  }
}

struct Linear {  // W x + b; sizes are multiples of 128. As fused.py has it
  int in, out;
  const uint32_t *forward, *backward;  // W packed, for W x by blocks of 128 outputs, for W' g by blocks of 128 inputs
  const float* b;
  float *dw, *db;
  // dw and db of the first outputs, from a tile of their gradients g and of inputs x
  void learn(const bf16* g, const bf16* x, int outputs) const {
    alignas(64) uint32_t gs[T / 2 * D], xs[T / 2 * D];
    for (int i = 0; i < in; i += D) for (int o = 0; o < outputs; o += D) {
      interleave(x + i, in, xs);
      transpose(g + o, out, gs);
      for (int c = 0; c < D; c += 64) for (int r = 0; r < D; r += 32)
        multiply(dw + (o + r) * in + i + c, in, true, (const bf16*)gs + r * T, T, xs + c, T);
    }
    for (int o = 0; o < outputs; o += D)
      for (int r = 0; r < T; r++) store(db + o, load<8>(db + o) + load<8>(g + r * out + o));
  }
};

// ---- norm, softmax ----

template <class Out> INLINE float normalise(const float* x, Out* n) {  // a row; returns 1 / sd
  Row row = load<8>(x), centred = row - mean(row);
  float scale = 1 / __builtin_sqrtf(dot(centred, centred) / D + 1e-5f);
  store(n, scale * centred);
  return scale;
}
template <class In> INLINE void normalise_back(const float* dn, const In* n, float scale, float* g) {  // g += dx
  Row d = load<8>(dn), row = load<8>(n);
  store(g, load<8>(g) + scale * (d - mean(d) - dot(d, row) / D * row));
}

using Scores = float[T];  // of a query with one key: those with the other keys follow
// Softmax over keys, then dropout: what is dropped stays with its sign turned, for the way back.
INLINE void softmax(Scores* p, int keys, Random& draws) {
  for (int c = 0; c < T; c += 16) {
    Vec top = load(p[0] + c), total = {};
    for (int j = 1; j < keys; j++) top = _mm512_max_ps(top, load(p[j] + c));
    for (int j = 0; j < keys; j++) {
      Vec e = exponential(load(p[j] + c) - top);
      store(p[j] + c, e), total += e;
    }
    for (int j = 0; j < keys; j++) store(p[j] + c, load(p[j] + c) / total);
  }
  for (int c = 0; c < T; c += 32) for (int j = 0; j < keys; j++) {
    uint32_t kept = draws.keep();
    Vecs<2> x = load<2>(p[j] + c);
    store(p[j] + c, Vecs<2>::each([&](int u) { return _mm512_mask_sub_ps(x.v[u], ~kept >> 16 * u, Vec{}, x.v[u]); }));
  }
}
INLINE void softmax_back(const Scores* p, int keys, Scores* d) {  // d: of what was kept and of what not, then of scores
  for (int c = 0; c < T; c += 16) {
    Vec mean = {};
    for (int j = 0; j < keys; j++) mean += positive(load(p[j] + c)) * load(d[j] + c);
    for (int j = 0; j < keys; j++) {
      Vec q = load(p[j] + c);
      store(d[j] + c, positive(q) * load(d[j] + c) - _mm512_abs_ps(q) * mean);
    }
  }
}
INLINE float kept(float p) { return p > 0 ? p : 0; }

// ---- the model ----

template <class X> struct Tables { X *stream, *scores, *vo, *b, *unembed, *unembed_b; };

struct Weights {  // as fused.py has it
  int layers, length, read, d_ff, pairs, causal;  // `read`: the first position of the loss
  const float *cosine, *sine;                     // [length][128]; sines with the sign of `turned`
  Tables<const float> p;                          // layer 0's attention by pairs, its output's b; [12][128]
  Tables<float> d;                                // their gradients
  Linear linear[L][4];                            // [k v q], output, up and down; of layer 0 the latter two
};

struct Layer {  // what it keeps for the way back
  bf16 n[P][T][D], n2[P][T][D], projected[P][T][3 * D];  // norms; [k v q], turned
  bf16 z[P][T][D], h[P * T * F];                         // heads' outputs; neurons
  float scale[P][T], scale2[P][T];                       // 1 / sd
  uint32_t kept_out[P][T][4], kept_mlp[P][T][4];         // m, in bits
  Scores pattern[P][H][P];                               // [query][head][key]
};
enum { KVQ, OUT, UP, DOWN };             // of `linear`
enum { KEY, VALUE = D, QUERY = 2 * D };  // columns of `projected`

struct Model : Weights {
  Random random;
  Layer layer[L];
  int pair[P][T];
  float x[P][T][D], g[P][T][D];  // the stream and its gradient
  Scores dpattern[P][H][P];

  explicit Model(const Weights& w) : Weights(w) {}
  int from(int l) const { return l == layers - 1 ? read : 0; }    // the first position whose query layer l needs
  int first(int l, int key) const { return causal && key > from(l) ? key : from(l); }  // the first that sees a key
  int keys(int query) const { return causal ? query + 1 : length; }  // how many it sees
  long cell(int h, int i, int j, int b) const { return (h * pairs + pair[i][b]) * pairs + pair[j][b]; }

  // rotary at position p, columns c ...; the transpose, for gradients, with sign -1
  INLINE Block turned(Block x, int p, int c, float sign = 1) const {
    return Block::each([&](int u) {
      long at = p * D + c % D + 16 * u;
      return x.v[u] * load(cosine + at) + sign * _mm512_permute_ps(x.v[u], 0xB1) * load(sine + at);
    });
  }

  // ---- layer 0's attention ----

  void look_up() {
    Layer& y = layer[0];
    for (int i = from(0); i < length; i++) for (int h = 0; h < H; h++) {
      for (int j = 0; j < keys(i); j++) for (int b = 0; b < T; b++)
        y.pattern[i][h][j][b] = p.scores[cell(h, i, j, b)];
      softmax(y.pattern[i][h], keys(i), random);
    }
    for (int i = from(0); i < length; i++) for (int b = 0; b < T; b++) {
      Row out = load<8>(p.b);
      for (int h = 0; h < H; h++) for (int j = 0; j < keys(i); j++)
        out = out + kept(y.pattern[i][h][j][b]) * load<8>(p.vo + (h * pairs + pair[j][b]) * D);
      store(x[i][b], load<8>(p.stream + pair[i][b] * D));
      add(x[i][b], out, y.kept_out[i][b]);
    }
  }
  void look_up_back() {
    Layer& y = layer[0];
    alignas(64) float out[P][D];  // gradients of one sum's attention output
    for (int b = 0; b < T; b++) {
      for (int i = from(0); i < length; i++) {
        Row here = load<8>(g[i][b]), passed = where(y.kept_out[i][b], here);
        float* to = d.stream + pair[i][b] * D;
        store(out[i], passed), store(to, load<8>(to) + here), store(d.b, load<8>(d.b) + passed);
      }
      for (int h = 0; h < H; h++) for (int j = 0; j < length; j++) {
        long key = (h * pairs + pair[j][b]) * D;
        Row v = load<8>(p.vo + key), dv = load<8>(d.vo + key);
        for (int i = first(0, j); i < length; i++) {
          dv = dv + kept(y.pattern[i][h][j][b]) * load<8>(out[i]);
          dpattern[i][h][j][b] = dot<2>(load<8>(out[i]), v);
        }
        store(d.vo + key, dv);
      }
    }
    for (int i = from(0); i < length; i++) for (int h = 0; h < H; h++) {
      softmax_back(y.pattern[i][h], keys(i), dpattern[i][h]);
      for (int j = 0; j < keys(i); j++)
        for (int b = 0; b < T; b++) d.scores[cell(h, i, j, b)] += dpattern[i][h][j][b];
    }
  }

  // ---- from the stream into a product and back, at position p; f(row, column, 64 columns) ----

  template <class F> INLINE void enter(const Linear& w, int p, int outputs, bf16 (*n)[D], float* scale, F f) {
    for (int r = 0; r < T; r++) scale[r] = normalise(x[p][r], n[r]);
    product(n[0], D, D, w.forward, outputs, [&](int r, int c, Block y) { f(r, c, y + load<4>(w.b + c)); });
  }
  void enter_back(const Linear& w, int p, int outputs, const bf16 (*n)[D], const float* scale, const bf16* gradient) {
    alignas(64) float dn[T][D];
    w.learn(gradient, n[0], outputs);
    product(gradient, w.out, outputs, w.backward, D, [&](int r, int c, Block y) { store(dn[r] + c, y); });
    for (int r = 0; r < T; r++) normalise_back(dn[r], n[r], scale[r], g[p][r]);
  }
  template <int N> INLINE void add(float* x, Vecs<N> y, uint32_t* bits) {  // x += m y
    for (int u = 0; u < N / 2; u++) bits[u] = random.keep();
    store(x, load<N>(x) + where(bits, y));
  }
  void leave(const Linear& w, int p, const bf16* input, uint32_t (*bits)[4]) {  // x += m (W input + b)
    product(input, w.in, w.in, w.forward, D, [&](int r, int c, Block y) {
      add(x[p][r] + c, y + load<4>(w.b + c), bits[r] + c / 32);
    });
  }
  template <class F> INLINE void leave_back(const Linear& w, int p, const bf16* input, uint32_t (*bits)[4], F f) {
    alignas(64) bf16 passed[T][D];
    for (int r = 0; r < T; r++) store(passed[r], where(bits[r], load<8>(g[p][r])));
    w.learn(passed[0], input, D);
    product(passed[0], D, D, w.backward, w.in, f);  // which gets the gradient of the input
  }

  // ---- later attention, MLP ----

  void attend(int l) {
    Layer& y = layer[l];
    for (int p = 0; p < length; p++) {
      auto keep = [&](int r, int c, Block kvq) { store(y.projected[p][r] + c, turned(kvq, p, c)); };
      enter(linear[l][KVQ], p, p < from(l) ? QUERY : 3 * D, y.n[p], y.scale[p], keep);
    }
    for (int b = 0; b < T; b++) for (int c = 0; c < D; c += DH)
      for (int i = from(l); i < length; i++) for (int j = 0; j < keys(i); j++)
        y.pattern[i][c / DH][j][b] = dot(y.projected[i][b] + QUERY + c, y.projected[j][b] + KEY + c) / 8;
    for (int i = from(l); i < length; i++) for (int h = 0; h < H; h++) softmax(y.pattern[i][h], keys(i), random);
    for (int b = 0; b < T; b++) for (int c = 0; c < D; c += DH) for (int i = from(l); i < length; i++) {
      Block z = {};
      for (int j = 0; j < keys(i); j++)
        z = z + kept(y.pattern[i][c / DH][j][b]) * load<4>(y.projected[j][b] + VALUE + c);
      store(y.z[i][b] + c, z);
    }
    for (int p = from(l); p < length; p++) leave(linear[l][OUT], p, y.z[p][0], y.kept_out[p]);
  }
  void attend_back(int l) {  // z, keys, values and queries give way to their gradients
    Layer& y = layer[l];
    for (int p = from(l); p < length; p++) {
      auto keep = [&](int r, int c, Block dz) { store(y.z[p][r] + c, dz); };
      leave_back(linear[l][OUT], p, y.z[p][0], y.kept_out[p], keep);
    }
    for (int b = 0; b < T; b++) for (int c = 0; c < D; c += DH)
      for (int i = from(l); i < length; i++) for (int j = 0; j < keys(i); j++)
        dpattern[i][c / DH][j][b] = dot(y.z[i][b] + c, y.projected[j][b] + VALUE + c);
    for (int i = from(l); i < length; i++)
      for (int h = 0; h < H; h++) softmax_back(y.pattern[i][h], keys(i), dpattern[i][h]);
    for (int b = 0; b < T; b++) for (int h = 0; h < H; h++) {
      alignas(64) float dq[P][DH] = {};
      for (int j = 0; j < length; j++) {
        bf16 *k = y.projected[j][b] + h * DH, *v = k + VALUE;
        Block key = load<4>(k), dk = {}, dv = {};
        for (int i = first(l, j); i < length; i++) {
          float d = dpattern[i][h][j][b] / 8;
          dv = dv + kept(y.pattern[i][h][j][b]) * load<4>(y.z[i][b] + h * DH);
          dk = dk + d * load<4>(y.projected[i][b] + QUERY + h * DH);
          store(dq[i], load<4>(dq[i]) + d * key);
        }
        store(k, turned(dk, j, 0, -1)), store(v, turned(dv, j, 0, -1));
      }
      for (int i = from(l); i < length; i++)
        store(y.projected[i][b] + QUERY + h * DH, turned(load<4>(dq[i]), i, 0, -1));
    }
    for (int p = 0; p < length; p++) {
      if (p < from(l)) memset(g[p], 0, sizeof g[p]);
      enter_back(linear[l][KVQ], p, p < from(l) ? QUERY : 3 * D, y.n[p], y.scale[p], y.projected[p][0]);
    }
  }
  void mlp(int l) {
    Layer& y = layer[l];
    for (int p = from(l); p < length; p++) {
      bf16* h = y.h + p * T * d_ff;
      enter(linear[l][UP], p, d_ff, y.n2[p], y.scale2[p], [&](int r, int c, Block pre) {
        uint32_t bits[] = {random.keep(), random.keep()};
        store(h + r * d_ff + c, where(bits, Block::each([&](int u) { return positive(pre.v[u]); })));
      });
      leave(linear[l][DOWN], p, h, y.kept_mlp[p]);
    }
  }
  void mlp_back(int l) {  // neurons give way to their gradients, which pass where a neuron is above zero
    Layer& y = layer[l];
    for (int p = from(l); p < length; p++) {
      bf16* h = y.h + p * T * d_ff;
      leave_back(linear[l][DOWN], p, h, y.kept_mlp[p], [&](int r, int c, Block dh) {
        Block post = load<4>(h + r * d_ff + c);
        auto passed = [&](int u) { return _mm512_maskz_mov_ps(_mm512_cmplt_ps_mask(Vec{}, post.v[u]), dh.v[u]); };
        store(h + r * d_ff + c, Block::each(passed));
      });
      enter_back(linear[l][UP], p, d_ff, y.n2[p], y.scale2[p], h);
    }
  }

  // ---- loss ----

  float read_out(const float* x, float* n, float* z) {  // a row's logits z and norm n; returns 1 / sd
    float scale = normalise(x, n);
    for (int t = 0; t < VOCAB; t++) z[t] = p.unembed_b[t] + dot(load<8>(n), load<8>(p.unembed + t * D));
    return scale;
  }
  // g from the tile's loss; adds [loss, right at each read position, all right] of its sums to `metrics`
  void loss(const int* target, long count, int valid, double* metrics) {
    uint64_t wrong = 0;
    memset(g[read], 0, (length - read) * sizeof g[0]);
    float each = 1.f / (count * (length - read));
    for (int i = read; i < length; i++) for (int b = 0; b < valid; b++) {
      alignas(64) float n[D], dn[D] = {}, z[16] = {};
      float scale = read_out(x[i][b], n, z);
      int t = target[(i - read) * count + b];
      const __mmask16 tokens = (1 << VOCAB) - 1;
      float top = _mm512_mask_reduce_max_ps(tokens, load(z)), own = z[t];
      Vec e = _mm512_maskz_mov_ps(tokens, exponential(load(z) - top));
      float total = _mm512_reduce_add_ps(e);
      metrics[0] += top + __builtin_logf(total) - own;
      metrics[1 + i - read] += own == top;
      wrong |= (uint64_t)(own != top) << b;
      store(z, e * (each / total)), z[t] -= each;
      for (int t = 0; t < VOCAB; t++) {
        d.unembed_b[t] += z[t];
        store(dn, load<8>(dn) + z[t] * load<8>(p.unembed + t * D));
        store(d.unembed + t * D, load<8>(d.unembed + t * D) + z[t] * load<8>(n));
      }
      normalise_back(dn, n, scale, g[i][b]);
    }
    metrics[1 + length - read] += valid - __builtin_popcountll(wrong);
  }
  void logits(float* to, long count, int valid) {
    alignas(64) float n[D];
    for (int i = read; i < length; i++) for (int b = 0; b < valid; b++)
      read_out(x[i][b], n, to + ((i - read) * count + b) * VOCAB);
  }
};
}  // namespace

// Without `after`: adds the gradients of the mean loss over `count` sums, and sums to `metrics`, as `loss` does. Else:
// logits [read][count][12] after the last MLP and before it. `pairs` is [position][count], `target` [read][count],
// `state` eight lanes' words a, then b, c, counter.
extern "C" void run(const Weights* w, long count, const int* pairs, const int* target, uint64_t* state, int threshold,
                    double* metrics, float* after, float* before) {
  Tiles tiles;
  std::unique_ptr<Model> m(new Model(*w));
  memcpy(&m->random, state, 256);
  m->random.threshold = _mm512_set1_epi16((short)threshold);
  for (long at = 0; at < count; at += T) {
    int valid = count - at < T ? count - at : T, last = w->layers - 1;
    for (int i = 0; i < w->length; i++) for (int b = 0; b < T; b++)  // beyond the last sum that one again
      m->pair[i][b] = pairs[i * count + at + (b < valid ? b : valid - 1)];
    m->look_up();
    for (int l = 1; l <= last; l++) m->mlp(l - 1), m->attend(l);
    if (after) m->logits(before + at * VOCAB, count, valid);
    m->mlp(last);
    if (after) m->logits(after + at * VOCAB, count, valid);
    if (after) continue;
    m->loss(target + at, count, valid, metrics);
    for (int l = last; l > 0; l--) m->mlp_back(l), m->attend_back(l);
    m->mlp_back(0), m->look_up_back();
  }
  memcpy(state, &m->random, 256);
}
