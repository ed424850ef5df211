// Causal attention over paged bf16 K/V, the same bits for a query whatever runs beside it.
//
// One layer's cache holds pairs of bf16: K [P][Hkv][D/2][16][2] (a page's sixteen keys are the lanes,
// two neighbouring numbers of a key a pair), V [P][Hkv][8][D][2] (two neighbouring keys a pair).
// Keys are cut into chunks of 256 at absolute positions. A chunk gives each query its maximum m,
// its sum l of e^(score - m) and the weighted sum of V; chunks are merged in ascending order. Both
// the decode path (chunks in parallel, merged afterwards) and the prefill path (merged on the fly)
// do exactly these operations, so they agree bit for bit. Scores are in units of log 2.
#pragma once
#include "../_cpu/simd.h"

namespace agentspec {

constexpr int kPage = 16;
constexpr int kChunk = 256;
constexpr int kMaxHead = 256;
#if defined(__AVX512F__)
constexpr int kSums = 24;     // accumulators that the registers hold
constexpr int kQueries = 12;  // most queries of one tile
#elif defined(__AVX2__)
constexpr int kSums = 6;
constexpr int kQueries = 6;
#else
constexpr int kSums = 1;
constexpr int kQueries = 3;
#endif
constexpr float kLog2E = 1.44269504088896341f;

// Rows [row, row + rows) of the batch: one sequence's tokens at positions start, start + 1, ...
// In a tree (tree >= 0: index of its first entry in the parents) row i follows row parents[i] < i of
// the span (row 0 follows the context), so it stands one position behind it; its K and V still go to
// slot start + i, and it sees the context and the rows on its path only. Rows are rotated for their
// position + shift: a page table may begin in the middle of a text.
struct Span {
  int32_t row, rows, start, pages;  // pages: index of its first entry in the page tables
  int32_t tree, shift;
};

constexpr int kMaxPath = 64;  // rows on a path of a tree

// The rows on the path to `row`, from the tree's first row on; returns how many there are.
static inline int path_to(const int32_t* parents, int row, int* path) {
  int count = 0;
  for (int at = row; at >= 0 && count < kMaxPath; at = parents[at]) path[count++] = at;
  for (int i = 0, j = count - 1; i < j; i++, j--) {
    int other = path[i];
    path[i] = path[j];
    path[j] = other;
  }
  return count;
}

struct Cache {
  uint16_t *k, *v;
  int kv_heads, dim;
  uint16_t* key(int page, int head) const {
    return k + ((int64_t)page * kv_heads + head) * dim * kPage;
  }
  uint16_t* value(int page, int head) const {
    return v + ((int64_t)page * kv_heads + head) * dim * kPage;
  }
};

static inline void write_kv(const Cache& c, int page, int slot, int head, const float* k,
                            const float* v) {
  uint16_t *kp = c.key(page, head) + 2 * slot;
  uint16_t *vp = c.value(page, head) + (slot / 2) * 2 * c.dim + slot % 2;
  for (int i = 0; i < c.dim; i += 2) {
    kp[i * kPage] = to_bf16(k[i]);
    kp[i * kPage + 1] = to_bf16(k[i + 1]);
  }
  for (int i = 0; i < c.dim; i++) vp[2 * i] = to_bf16(v[i]);
}

// The pages of one K/V head that a chunk's keys lie in, in position order.
struct Pages {
  const Cache* cache;
  int head, count = 0;
  const uint16_t *keys[kChunk / kPage], *values[kChunk / kPage];
  Pages(const Cache& c, int h) : cache(&c), head(h) {}
  void add(const uint16_t* key, const uint16_t* value) {
    keys[count] = key;
    values[count++] = value;
  }
  void add(const int32_t* table, int pages) {
    for (int i = 0; i < pages; i++) add(cache->key(table[i], head), cache->value(table[i], head));
  }
  const uint16_t* key(int i) const { return keys[i]; }
  const uint16_t* value(int i) const { return values[i]; }
};

// Slot `to` of the pages k, v becomes slot `from` of the pages key, value; dim as in Cache.
static inline void copy_slot(const uint16_t* key, const uint16_t* value, int from, uint16_t* k,
                             uint16_t* v, int to, int dim) {
  for (int d = 0; d < dim; d += 2)
    std::memcpy(k + d * kPage + 2 * to, key + d * kPage + 2 * from, 2 * sizeof(uint16_t));
  value += (from / 2) * 2 * dim + from % 2;
  v += (to / 2) * 2 * dim + to % 2;
  for (int d = 0; d < dim; d++) v[2 * d] = value[2 * d];
}

// State of one query: m, l and the unnormalised output [D]. m = -inf: nothing seen yet.
struct Partial {
  float m, l;
  float out[kMaxHead];
};

// The pages of the keys that are wanted next, to be fetched in advance; count 0: none known.
struct Ahead {
  const int32_t* pages;
  int count;
};

// score[i][0 .. 16*P): of N queries against the sixteen keys of each of P pages; D ascending.
// Meanwhile `next` and `value`, as many bytes of as many pages, come into the cache.
template <int N, int P>
static inline void score_pages(const uint16_t* const* key, const uint16_t* const* next,
                               const uint16_t* const* value, int dim, const Weight (*q)[kMaxHead],
                               float (*score)[kChunk]) {
  Vec sum[P][N];
#pragma GCC unroll 8
  for (int p = 0; p < P; p++)
#pragma GCC unroll 16
    for (int i = 0; i < N; i++) sum[p][i] = zero();
  for (int d = 0; d < dim; d += 2)
#pragma GCC unroll 2
    for (int step = 0; step < kSteps; step++) {
      Operand k[P];
#pragma GCC unroll 8
      for (int p = 0; p < P; p++) {
        k[p] = operand(key[p] + d * kPage, step);
        if (step == 0) prefetch(next[p] + d * kPage), prefetch(value[p] + d * kPage);
      }
#pragma GCC unroll 16
      for (int i = 0; i < N; i++) {
        Operand x = factor(q[i] + d, step);
#pragma GCC unroll 8
        for (int p = 0; p < P; p++) sum[p][i] = multiply_add(k[p], x, sum[p][i]);
      }
    }
#pragma GCC unroll 8
  for (int p = 0; p < P; p++)
#pragma GCC unroll 16
    for (int i = 0; i < N; i++) store(score[i] + p * kPage, sum[p][i]);
}

// Scores of `count` pages, P at a time and what is left over fewer at a time.
template <int N, int P>
static inline void score_chunk(const Pages& pages, int first, int count,
                               const Weight (*q)[kMaxHead], float (*score)[kChunk]) {
  for (; first + P <= count; first += P) {
    const uint16_t *key[P], *next[P], *value[P];
    for (int p = 0; p < P; p++) {
      int after = first + P + p;
      key[p] = pages.key(first + p);
      next[p] = pages.key(after < count ? after : first + p);
      value[p] = pages.value(first + p);
    }
    score_pages<N, P>(key, next, value, pages.cache->dim, q,
                      (float (*)[kChunk])(score[0] + first * kPage));
  }
  if constexpr (P > 1) score_chunk<N, P / 2>(pages, first, count, q, score);
}

// out[i][0 .. 16*W) = sum over a chunk's keys t of weight[i][t] * V[t], t ascending.
template <int N, int W>
static inline void weigh_values(const Pages& pages, int keys, int offset,
                                const Weight (*weight)[kChunk], Partial* const* out,
                                Ahead ahead) {
  const Cache& c = *pages.cache;
  Vec sum[N][W];
#pragma GCC unroll 16
  for (int i = 0; i < N; i++)
#pragma GCC unroll 4
    for (int j = 0; j < W; j++) sum[i][j] = zero();
  for (int begin = 0; begin < keys; begin += kPage) {
    int page = begin / kPage;
    const uint16_t* v = pages.value(page) + 2 * offset;
    const uint16_t* next =
        page < ahead.count ? c.key(ahead.pages[page], pages.head) + 2 * offset : v;
    int stop = keys - begin < kPage ? keys - begin : kPage;
    for (int t = 0; t < stop; t += 2, v += 2 * c.dim, next += 2 * c.dim)
#pragma GCC unroll 2
      for (int step = 0; step < kSteps; step++) {
        Operand x[W];
#pragma GCC unroll 4
        for (int j = 0; j < W; j++) {
          const uint16_t* p = v + 2 * j * kLanes;
          // The pair's second key may never have been written.
          x[j] = t + 1 < stop ? operand(p, step) : even_only(p, step);
          if (step == 0) prefetch(next + 2 * j * kLanes);
        }
#pragma GCC unroll 16
        for (int i = 0; i < N; i++) {
          Operand e = factor(weight[i] + begin + t, step);
#pragma GCC unroll 4
          for (int j = 0; j < W; j++) sum[i][j] = multiply_add(x[j], e, sum[i][j]);
        }
      }
  }
#pragma GCC unroll 16
  for (int i = 0; i < N; i++)
#pragma GCC unroll 4
    for (int j = 0; j < W; j++) store(out[i]->out + offset + j * kLanes, sum[i][j]);
}

// All D outputs of N queries, as many lanes at a time as the registers hold sums for.
template <int N>
static inline void weigh_chunk(const Pages& pages, int keys, const Weight (*weight)[kChunk],
                               Partial* const* out, Ahead ahead) {
  if constexpr (N > 6) {  // four vectors each, and six queries at a time, fill the registers
    weigh_chunk<N / 2>(pages, keys, weight, out, ahead);
    weigh_chunk<N - N / 2>(pages, keys, weight + N / 2, out + N / 2, {nullptr, 0});
  } else {
    constexpr int W = 4 * N <= kSums ? 4 : 2 * N <= kSums ? 2 : 1;
    int offset = 0, dim = pages.cache->dim;
    for (; offset + W * kLanes <= dim; offset += W * kLanes)
      weigh_values<N, W>(pages, keys, offset, weight, out, ahead);
    for (; offset < dim; offset += kLanes)
      weigh_values<N, 1>(pages, keys, offset, weight, out, ahead);
  }
}

// N queries (at most kQueries) against keys [begin, begin + 256) of a sequence, whose pages are given.
// q[i]: [D], scaled by log2(e) / sqrt(D); last[i]: the last position that query i may see.
template <int N>
static void attend_chunk(const Pages& pages, int begin, const Weight (*q)[kMaxHead],
                         const int* last, Partial* const* out, Ahead ahead) {
  int keys = 0;
  for (int i = 0; i < N; i++) keys = last[i] + 1 - begin > keys ? last[i] + 1 - begin : keys;
  if (keys == 0) {  // all of them end before this chunk, into which the span's later rows reach
    for (int i = 0; i < N; i++) out[i]->m = -INFINITY;
    return;
  }
  if (keys > kChunk) keys = kChunk;
  int count = (keys + kPage - 1) / kPage;
  alignas(64) float score[N][kChunk];
  alignas(64) Weight weight[N][kChunk];
  constexpr int P = 8 * N <= kSums ? 8 : 4 * N <= kSums ? 4 : 2 * N <= kSums ? 2 : 1;
  score_chunk<N, P>(pages, 0, count, q, score);
  for (int i = 0; i < N; i++) {
    int seen = last[i] + 1 - begin;
    for (int j = seen < 0 ? 0 : seen; j < count * kPage; j++) score[i][j] = -INFINITY;
    Vec top = load(score[i]), total = zero();
    for (int p = 1; p < count; p++) top = max(top, load(score[i] + p * kPage));
    float m = largest(top);
    Vec shift = set1(m == -INFINITY ? 0.f : m);
    for (int p = 0; p < count; p++) {
      Vec e = exp2_negative(sub(load(score[i] + p * kPage), shift));
      store_weights(weight[i] + p * kPage, e);
      total = add(total, e);
    }
    out[i]->m = m;
    out[i]->l = sum(total);
  }
  weigh_chunk<N>(pages, keys, weight, out, ahead);
}

static inline void attend_queries(const Pages& pages, int begin, int queries,
                                  const Weight (*q)[kMaxHead], const int* last,
                                  Partial* const* out, Ahead ahead) {
  switch (queries) {
#define AGENTSPEC_CASE(N) \
  case N: return attend_chunk<N>(pages, begin, q, last, out, ahead);
    AGENTSPEC_CASE(1) AGENTSPEC_CASE(2) AGENTSPEC_CASE(3)
#if defined(__AVX2__)
    AGENTSPEC_CASE(4) AGENTSPEC_CASE(5) AGENTSPEC_CASE(6)
#endif
#if defined(__AVX512F__)
    AGENTSPEC_CASE(7) AGENTSPEC_CASE(8) AGENTSPEC_CASE(9)
    AGENTSPEC_CASE(10) AGENTSPEC_CASE(11) AGENTSPEC_CASE(12)
#endif
#undef AGENTSPEC_CASE
  }
}

static inline void merge(Partial& state, const Partial& chunk, int dim) {
  if (chunk.m == -INFINITY) return;
  if (state.m == -INFINITY) {
    state.m = chunk.m;
    state.l = chunk.l;
    for (int d = 0; d < dim; d += kLanes) store(state.out + d, load(chunk.out + d));
    return;
  }
  float m = state.m > chunk.m ? state.m : chunk.m;
  float a[kLanes], b[kLanes];
  store(a, exp2_negative(set1(state.m - m)));
  store(b, exp2_negative(set1(chunk.m - m)));
  state.m = m;
  state.l = state.l * a[0] + chunk.l * b[0];
  for (int d = 0; d < dim; d += kLanes) {
    Vec old = mul(load(state.out + d), set1(a[0]));
    store(state.out + d, fma(load(chunk.out + d), set1(b[0]), old));
  }
}

static inline void finish(const Partial& state, int dim, float* y) {
  Vec r = set1(1.f / state.l);
  for (int d = 0; d < dim; d += kLanes) store(y + d, mul(load(state.out + d), r));
}

}  // namespace agentspec
