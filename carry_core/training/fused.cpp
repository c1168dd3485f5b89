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
constexpr int D = 128, H = 2, DH = D / H, VOCAB = 12, TOKENS = (1 << VOCAB) - 1;  // d_model, heads, d_head, tokens
constexpr int T = 64, P = 31, F = 1024, L = 3;  // sums in a tile; at most so many positions, neurons, layers
using bf16 = uint16_t;
#define INLINE inline __attribute__((always_inline))

// ---- vectors: of 16 floats, and of N times as many ----
using Vec = __m512;  // GCC and Clang give it + - * / with vectors and scalars, and fuse a sum with its first product
INLINE Vec load(const float* p) { return _mm512_loadu_ps(p); }
INLINE Vec load(const bf16* p) { return (Vec)(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p)) << 16); }
INLINE void store(float* p, Vec x) { _mm512_storeu_ps(p, x); }
INLINE void store(bf16* p, Vec x) { _mm256_storeu_si256((__m256i*)p, (__m256i)_mm512_cvtneps_pbh(x)); }
INLINE Vec exponential(Vec x) {  // 2^n 2^f with |f| <= 1/2, by the series of 2^f
  x = _mm512_max_ps(x * 1.44269504f, _mm512_set1_ps(-120));
  Vec n = _mm512_roundscale_ps(x, 0), f = x - n, y = f * 1.5403530e-4f + 1.3333558e-3f;
  y = (((y * f + 9.6181291e-3f) * f + 5.5504109e-2f) * f + 2.4022651e-1f) * f + 6.9314718e-1f;
  return _mm512_scalef_ps(y * f + 1.f, n);
}

template <int N> struct Vecs {
  Vec v[N];
  INLINE Vecs(float x = 0) { for (Vec& part : v) part = Vec{} + x; }
  template <class X> INLINE explicit Vecs(const X* p) { for (int u = 0; u < N; u++) v[u] = load(p + 16 * u); }
  template <class X> INLINE friend void store(X* p, Vecs x) { for (int u = 0; u < N; u++) store(p + 16 * u, x.v[u]); }
  template <class F> INLINE static Vecs each(F f) {
    Vecs x;
    for (int u = 0; u < N; u++) x.v[u] = f(u);
    return x;
  }
  INLINE friend Vecs operator+(Vecs a, Vecs b) { return each([&](int u) { return a.v[u] + b.v[u]; }); }
  INLINE friend Vecs operator-(Vecs a, Vecs b) { return each([&](int u) { return a.v[u] - b.v[u]; }); }
  INLINE friend Vecs operator*(Vecs a, Vecs b) { return each([&](int u) { return a.v[u] * b.v[u]; }); }
  INLINE friend Vecs operator/(Vecs a, Vecs b) { return each([&](int u) { return a.v[u] / b.v[u]; }); }
  INLINE friend Vecs max(Vecs a, Vecs b) { return each([&](int u) { return _mm512_max_ps(a.v[u], b.v[u]); }); }
  INLINE friend Vecs where(const uint32_t* bits, Vecs x) {  // 32 columns a word
    return each([&](int u) { return _mm512_maskz_mov_ps(bits[u / 2] >> 16 * (u % 2), x.v[u]); });
  }
};
using Row = Vecs<8>;    // of the stream
using Block = Vecs<4>;  // 64 columns of it: a product's unit, and a head. Or a tile's 64 sums
template <int chains = 1> INLINE float dot(Row a, Row b) {  // two chains wait half as long
  Vec total[2] = {};
  for (int u = 0; u < 8; u++) total[u % chains] += a.v[u] * b.v[u];
  return _mm512_reduce_add_ps(total[0] + total[1]);
}
INLINE float mean(Row x) { return dot(x, 1) / D; }

INLINE __m512bh words(const void* p) { return (__m512bh)_mm512_loadu_si512(p); }  // of two bf16
INLINE float dot(const bf16* a, const bf16* b) {  // over a head
  Vec low = _mm512_dpbf16_ps(Vec{}, words(a), words(b));
  return _mm512_reduce_add_ps(_mm512_dpbf16_ps(low, words(a + 32), words(b + 32)));
}

// SFC64 in eight lanes, each as numpy has it: 32 draws of 16 bits at a time.
struct Random {
  typedef uint64_t Lanes __attribute__((vector_size(64)));
  Lanes a, b, c, counter;
  __m512i threshold;
  INLINE uint32_t keep() {  // 32 bits, each 0 with probability threshold / 2^16
    Lanes out = a + b + counter;
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
    Block acc[4];
    for (int i = 0; add && i < 4; i++) acc[i] = Block(C + i * row);
    for (int k = 0; k < K; k += 2)
#pragma GCC unroll 4
      for (int i = 0; i < 4; i++) {
        __m512bh a = (__m512bh)_mm512_set1_epi32(*(const uint32_t*)(A + i * width + k));
        acc[i] = Block::each([&](int j) { return _mm512_dpbf16_ps(acc[i].v[j], words(B + D / 2 * k + 16 * j), a); });
      }
    for (int i = 0; i < 4; i++) store(C + i * row, acc[i]);
  }
}
// A B for a tile's rows of A, [T][width], of which K columns count; each row's 64 columns go to f(row, column, columns)
template <class F> INLINE void product(const bf16* A, int width, int K, const uint32_t* B, int columns, F f) {
  alignas(64) float C[32][64];
  for (int c = 0; c < columns; c += 64) for (int r = 0; r < T; r += 32) {
    multiply(C[0], 64, false, A + r * width, width, B + c / D * D * K / 2 + c % D, K);
    for (int i = 0; i < 32; i++) f(r + i, c, Block(C[i]));
  }
}
void interleave(const bf16* A, long width, uint32_t* __restrict out) {  // a tile's rows of 128 columns, two by two
  for (int r = 0; r < T; r += 2)
    for (int c = 0; c < D; c++) *out++ = A[r * width + c] | A[(r + 1) * width + c] << 16;
}
// A tile's 128 columns, as rows. A riffle of its words turns the bits of their address, five of a (double) row and
// seven of a column, by one; so five riffles exchange row and column.
INLINE void transpose(const bf16* A, long width, uint32_t* out) {
  constexpr int half = T / 4 * D;
  alignas(64) uint32_t other[2 * half], *from = other, *to = out;
  interleave(A, width, from);
  for (int pass = 0; pass < 5; pass++, std::swap(from, to))
#pragma GCC ivdep
    for (int i = 0; i < half; i++) to[2 * i] = from[i], to[2 * i + 1] = from[i + half];
}

struct Linear {  // W x + b; sizes are multiples of 128. As fused.py has it
  int in, out;
  const uint32_t *forward, *backward;  // W packed, for W x by blocks of 128 outputs, for W' g by blocks of 128 inputs
  const float* b;
  float *dw, *db;
  // the first outputs of W x + b, to f
  template <class F> INLINE void apply(const bf16* x, int outputs, F f) const {
    product(x, in, in, forward, outputs, [&](int r, int c, Block y) { f(r, c, y + Block(b + c)); });
  }
  // from the gradients g of the first outputs: dw and db, with the inputs x; W' g, to f
  template <class F> INLINE void back(const bf16* g, const bf16* x, int outputs, F f) const {
    alignas(64) uint32_t gs[T / 2 * D], xs[T / 2 * D];
    for (int o = 0; o < outputs; o += D) {
      transpose(g + o, out, gs);
      for (int i = 0; i < in; i += D) {
        interleave(x + i, in, xs);
        for (int c = 0; c < D; c += 64) for (int r = 0; r < D; r += 32)
          multiply(dw + (o + r) * in + i + c, in, true, (const bf16*)gs + r * T, T, xs + c, T);
      }
      Row total(db + o);
      for (int r = 0; r < T; r++) total = total + Row(g + r * out + o);
      store(db + o, total);
    }
    product(g, out, outputs, backward, in, f);
  }
};

// ---- norm, softmax ----
INLINE Row normalise(const float* x, float& scale) {  // n of a row, and 1 / sd
  Row row(x), centred = row - mean(row);
  scale = 1 / __builtin_sqrtf(dot(centred, centred) / D + 1e-5f);
  return scale * centred;
}
INLINE Row normalise_back(Row dn, Row n, float scale) { return scale * (dn - mean(dn) - dot(dn, n) / D * n); }

using Scores = float[T];  // of a query with one key: those with the other keys follow
// p from scores, over the keys, and m p; the masks are drawn for 32 sums and all keys, then for the other 32
INLINE void softmax(Scores* p, Scores* mp, int keys, Random& draws) {
  Block top(p[0]), total;
  for (int j = 1; j < keys; j++) top = max(top, Block(p[j]));
  for (int j = 0; j < keys; j++) {
    Block s = Block(p[j]) - top, e = Block::each([&](int u) { return exponential(s.v[u]); });
    store(p[j], e);
    total = total + e;
  }
  uint32_t kept[P][2];
  for (int half = 0; half < 2; half++) for (int j = 0; j < keys; j++) kept[j][half] = draws.keep();
  for (int j = 0; j < keys; j++) {
    store(p[j], Block(p[j]) / total);
    store(mp[j], where(kept[j], Block(p[j])));
  }
}
INLINE void softmax_back(const Scores* p, const Scores* mp, int keys, Scores* d) {  // d: of m p, then of the scores
  Block mean;
  for (int j = 0; j < keys; j++) mean = mean + Block(mp[j]) * Block(d[j]);
  for (int j = 0; j < keys; j++) {
    Block passed = Block(mp[j]) * Block(d[j]);
    store(d[j], passed - Block(p[j]) * mean);
  }
}

// ---- the model ----
struct Tables { float *stream, *scores, *vo, *b, *unembed, *unembed_b; };
struct Weights {  // as fused.py has it
  int layers, length, read, d_ff, pairs, causal;  // `read`: the first position of the loss
  const float *cosine, *sine;                     // [length][128]; sines with the sign of `turned`
  Tables table, grad;                             // layer 0's attention by pairs, its output's b; [12][128]; gradients
  Linear linear[L][4];                            // [k v q], output, up and down; of layer 0 the latter two
};
enum { KVQ, OUT, UP, DOWN };             // of `linear`
enum { KEY, VALUE = D, QUERY = 2 * D };  // columns of `projected`

struct Part {  // attention or MLP: what it keeps for the way back
  bf16 n[P][T][D];         // norm
  float scale[P][T];       // 1 / sd
  uint32_t kept[P][T][4];  // its output's m, in bits
};
struct Layer {
  Part attention, mlp;
  bf16 projected[P][T][3 * D], z[P][T][D], h[P * T * F];  // [k v q], turned; heads' outputs; neurons
  Scores p[P][H][P], mp[P][H][P];                         // pattern: [query][head][key]
};

struct Model : Weights {
  Random random;
  Layer layer[L];
  int pair[P][T];
  float x[P][T][D], g[P][T][D];  // the stream and its gradient
  Scores dp[P][H][P];

  explicit Model(const Weights& w) : Weights(w) {}
  int from(int l) const { return l == layers - 1 ? read : 0; }  // the first position whose query layer l needs
  int outputs(int l, int i) const { return i < from(l) ? QUERY : 3 * D; }              // of W_kvq that it needs there
  int first(int l, int key) const { return causal && key > from(l) ? key : from(l); }  // the first that sees a key
  int keys(int query) const { return causal ? query + 1 : length; }                    // how many it sees
  long cell(int h, int i, int j, int b) const { return (h * pairs + pair[i][b]) * pairs + pair[j][b]; }

  // ---- layer 0's attention ----
  void look_up() {
    Layer& y = layer[0];
    for (int i = from(0); i < length; i++) for (int h = 0; h < H; h++) {
      for (int j = 0; j < keys(i); j++) for (int b = 0; b < T; b++) y.p[i][h][j][b] = table.scores[cell(h, i, j, b)];
      softmax(y.p[i][h], y.mp[i][h], keys(i), random);
    }
    for (int i = from(0); i < length; i++) for (int b = 0; b < T; b++) {
      Row out(table.b);
      for (int h = 0; h < H; h++) for (int j = 0; j < keys(i); j++)
        out = out + y.mp[i][h][j][b] * Row(table.vo + (h * pairs + pair[j][b]) * D);
      store(x[i][b], Row(table.stream + pair[i][b] * D));
      add(x[i][b], out, y.attention.kept[i][b]);
    }
  }
  void look_up_back() {
    Layer& y = layer[0];
    alignas(64) float out[P][D];  // gradients of one sum's attention output
    for (int b = 0; b < T; b++) {
      for (int i = from(0); i < length; i++) {
        Row here(g[i][b]), passed = where(y.attention.kept[i][b], here);
        float* to = grad.stream + pair[i][b] * D;
        store(out[i], passed), store(to, Row(to) + here), store(grad.b, Row(grad.b) + passed);
      }
      for (int h = 0; h < H; h++) for (int j = 0; j < length; j++) {
        long key = (h * pairs + pair[j][b]) * D;
        Row v(table.vo + key), dv(grad.vo + key);
        for (int i = first(0, j); i < length; i++) {
          dv = dv + y.mp[i][h][j][b] * Row(out[i]);
          dp[i][h][j][b] = dot<2>(Row(out[i]), v);
        }
        store(grad.vo + key, dv);
      }
    }
    for (int i = from(0); i < length; i++) for (int h = 0; h < H; h++) {
      softmax_back(y.p[i][h], y.mp[i][h], keys(i), dp[i][h]);
      for (int j = 0; j < keys(i); j++) for (int b = 0; b < T; b++) grad.scores[cell(h, i, j, b)] += dp[i][h][j][b];
    }
  }

  // ---- from the stream into a product and back, at position i; f(row, column, 64 columns) ----
  template <class F> INLINE void enter(const Linear& w, Part& y, int i, int outputs, F f) {
    for (int r = 0; r < T; r++) store(y.n[i][r], normalise(x[i][r], y.scale[i][r]));
    w.apply(y.n[i][0], outputs, f);
  }
  void enter_back(const Linear& w, const Part& y, int i, int outputs, const bf16* gradient) {
    alignas(64) float dn[T][D];
    w.back(gradient, y.n[i][0], outputs, [&](int r, int c, Block dx) { store(dn[r] + c, dx); });
    for (int r = 0; r < T; r++)
      store(g[i][r], Row(g[i][r]) + normalise_back(Row(dn[r]), Row(y.n[i][r]), y.scale[i][r]));
  }
  template <int N> INLINE void add(float* x, Vecs<N> y, uint32_t* bits) {  // x += m y
    for (int u = 0; u < N / 2; u++) bits[u] = random.keep();
    store(x, Vecs<N>(x) + where(bits, y));
  }
  void leave(const Linear& w, Part& y, int i, const bf16* input) {  // x += m (W input + b)
    w.apply(input, D, [&](int r, int c, Block out) { add(x[i][r] + c, out, y.kept[i][r] + c / 32); });
  }
  template <class F> INLINE void leave_back(const Linear& w, const Part& y, int i, const bf16* input, F f) {
    alignas(64) bf16 passed[T][D];
    for (int r = 0; r < T; r++) store(passed[r], where(y.kept[i][r], Row(g[i][r])));
    w.back(passed[0], input, D, f);
  }

  // ---- later attention, MLP ----
  // rotary at position i, columns c ...; the transpose, for gradients, with sign -1
  INLINE Block turned(Block x, int i, int c, float sign = 1) const {
    Block swapped = Block::each([&](int u) { return _mm512_permute_ps(x.v[u], 0xB1); });
    Block straight = x * Block(cosine + i * D + c % D), crossed = sign * swapped * Block(sine + i * D + c % D);
    return straight + crossed;
  }
  void attend(int l) {
    Layer& y = layer[l];
    for (int i = 0; i < length; i++)
      enter(linear[l][KVQ], y.attention, i, outputs(l, i), [&](int r, int c, Block kvq) {
        store(y.projected[i][r] + c, turned(kvq, i, c));
      });
    for (int i = from(l); i < length; i++) for (int h = 0; h < H; h++) {
      for (int j = 0; j < keys(i); j++) for (int b = 0; b < T; b++)
        y.p[i][h][j][b] = dot(y.projected[i][b] + QUERY + h * DH, y.projected[j][b] + KEY + h * DH) / 8;
      softmax(y.p[i][h], y.mp[i][h], keys(i), random);
      for (int b = 0; b < T; b++) {
        Block z;
        for (int j = 0; j < keys(i); j++) z = z + y.mp[i][h][j][b] * Block(y.projected[j][b] + VALUE + h * DH);
        store(y.z[i][b] + h * DH, z);
      }
    }
    for (int i = from(l); i < length; i++) leave(linear[l][OUT], y.attention, i, y.z[i][0]);
  }
  void attend_back(int l) {  // z, keys, values and queries give way to their gradients
    Layer& y = layer[l];
    for (int i = from(l); i < length; i++) {
      leave_back(linear[l][OUT], y.attention, i, y.z[i][0], [&](int r, int c, Block dz) { store(y.z[i][r] + c, dz); });
      for (int h = 0; h < H; h++) {
        for (int j = 0; j < keys(i); j++) for (int b = 0; b < T; b++)
          dp[i][h][j][b] = dot(y.z[i][b] + h * DH, y.projected[j][b] + VALUE + h * DH);
        softmax_back(y.p[i][h], y.mp[i][h], keys(i), dp[i][h]);
      }
    }
    for (int b = 0; b < T; b++) for (int h = 0; h < H; h++) {
      alignas(64) float dq[P][DH] = {};
      for (int j = 0; j < length; j++) {
        bf16 *k = y.projected[j][b] + h * DH, *v = k + VALUE;
        Block key(k), dk, dv;
        for (int i = first(l, j); i < length; i++) {
          float d = dp[i][h][j][b] / 8;
          dv = dv + y.mp[i][h][j][b] * Block(y.z[i][b] + h * DH);
          dk = dk + d * Block(y.projected[i][b] + QUERY + h * DH);
          store(dq[i], Block(dq[i]) + d * key);
        }
        store(k, turned(dk, j, 0, -1));
        store(v, turned(dv, j, 0, -1));
      }
      for (int i = from(l); i < length; i++)
        store(y.projected[i][b] + QUERY + h * DH, turned(Block(dq[i]), i, 0, -1));
    }
    for (int i = 0; i < length; i++) enter_back(linear[l][KVQ], y.attention, i, outputs(l, i), y.projected[i][0]);
  }
  void mlp(int l) {
    for (int i = from(l); i < length; i++) {
      bf16* h = layer[l].h + i * T * d_ff;
      enter(linear[l][UP], layer[l].mlp, i, d_ff, [&](int r, int c, Block pre) {
        uint32_t bits[] = {random.keep(), random.keep()};
        store(h + r * d_ff + c, where(bits, max(pre, 0)));
      });
      leave(linear[l][DOWN], layer[l].mlp, i, h);
    }
  }
  void mlp_back(int l) {  // neurons give way to their gradients, which pass where a neuron is above zero
    for (int i = from(l); i < length; i++) {
      bf16* h = layer[l].h + i * T * d_ff;
      leave_back(linear[l][DOWN], layer[l].mlp, i, h, [&](int r, int c, Block dh) {
        Block post(h + r * d_ff + c);
        store(h + r * d_ff + c, Block::each([&](int u) { return post.v[u] > 0 ? dh.v[u] : Vec{}; }));
      });
      enter_back(linear[l][UP], layer[l].mlp, i, d_ff, h);
    }
  }

  // ---- loss ----
  void read_out(Row n, float* z) const {
    for (int t = 0; t < VOCAB; t++) z[t] = table.unembed_b[t] + dot(n, Row(table.unembed + t * D));
  }
  void logits(float* to, long count, int valid) const {
    float scale;
    for (int i = read; i < length; i++) for (int b = 0; b < valid; b++)
      read_out(normalise(x[i][b], scale), to + ((i - read) * count + b) * VOCAB);
  }
  // g from the tile's loss; adds [loss, right at each read position, all right] of its sums to `metrics`
  void loss(const int* target, long count, int valid, double* metrics) {
    uint64_t wrong = 0;
    memset(g[from(0)], 0, (length - from(0)) * sizeof g[0]);
    float each = 1.f / (count * (length - read));
    for (int i = read; i < length; i++) for (int b = 0; b < valid; b++) {
      alignas(64) float z[16] = {}, scale;
      Row n = normalise(x[i][b], scale), dn;
      read_out(n, z);
      int t = target[(i - read) * count + b];
      float top = _mm512_mask_reduce_max_ps(TOKENS, load(z)), own = z[t];
      Vec e = _mm512_maskz_mov_ps(TOKENS, exponential(load(z) - top));
      float total = _mm512_reduce_add_ps(e);
      metrics[0] += top + __builtin_logf(total) - own;
      metrics[1 + i - read] += own == top;
      wrong |= (uint64_t)(own != top) << b;
      store(z, e * (each / total));
      z[t] -= each;
      for (int t = 0; t < VOCAB; t++) {
        grad.unembed_b[t] += z[t];
        dn = dn + z[t] * Row(table.unembed + t * D);
        store(grad.unembed + t * D, Row(grad.unembed + t * D) + z[t] * n);
      }
      store(g[i][b], normalise_back(dn, n, scale));
    }
    metrics[1 + length - read] += valid - __builtin_popcountll(wrong);
  }
};
}  // namespace

// Without `logits`: adds the gradients of the mean loss over `count` sums, and sums to `metrics`, as `loss` does. Else:
// logits [2][read][count][12], before the last MLP and after it. `pairs` is [position][count], `target` [read][count],
// `state` eight lanes' words a, then b, c, counter.
extern "C" void run(const Weights* w, long count, const int* pairs, const int* target, uint64_t* state, int threshold,
                    double* metrics, float* logits) {
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
    if (logits) m->logits(logits + at * VOCAB, count, valid);
    m->mlp(last);
    if (logits) m->logits(logits + ((w->length - w->read) * count + at) * VOCAB, count, valid);
    if (logits) continue;
    m->loss(target + at, count, valid, metrics);
    for (int l = last; l > 0; l--) m->mlp_back(l), m->attend_back(l);
    m->mlp_back(0), m->look_up_back();
  }
  memcpy(state, &m->random, 256);
}
