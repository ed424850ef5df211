// Causal attention over paged bf16 K/V, the same bits for a query whatever runs beside it.
//
// One layer's cache: K [P][Hkv][D][16] (a page's sixteen keys are the lanes), V [P][Hkv][16][D].
// Keys are cut into chunks of 256 at absolute positions. A chunk gives each query its maximum m,
// its sum l of e^(score - m) and the weighted sum of V; chunks are merged in ascending order. Both
// the decode path (chunks in parallel, merged afterwards) and the prefill path (merged on the fly)
// do exactly these operations, so they agree bit for bit.
#pragma once
#include "../_cpu/simd.h"

namespace agentspec {

constexpr int kPage = 16;
constexpr int kChunk = 256;
constexpr int kQueries = 6;  // queries of one tile: their accumulators fill the registers
constexpr int kMaxHead = 256;

// Rows [row, row + rows) of the batch: one sequence's tokens at positions start, start + 1, ...
struct Span {
  int32_t row, rows, start, pages;  // pages: index of its first entry in the page tables
};

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
  uint16_t *kp = c.key(page, head) + slot, *vp = c.value(page, head) + slot * c.dim;
  for (int i = 0; i < c.dim; i++) kp[i * kPage] = to_bf16(k[i]);
  for (int i = 0; i < c.dim; i++) vp[i] = to_bf16(v[i]);
}

// State of one query: m, l and the unnormalised output [D]. m = -inf: nothing seen yet.
struct Partial {
  float m, l;
  float out[kMaxHead];
};

// Scores of N queries against one page's sixteen keys; D ascending.
template <int N>
static inline void score_page(const uint16_t* key, int dim, const float* const* q, Vec* out) {
  Vec acc[N];
#pragma GCC unroll 8
  for (int i = 0; i < N; i++) acc[i] = zero();
  for (int d = 0; d < dim; d++) {
    Vec k = load_bf16(key + d * kPage);
#pragma GCC unroll 8
    for (int i = 0; i < N; i++) acc[i] = fma(k, set1(q[i][d]), acc[i]);
  }
#pragma GCC unroll 8
  for (int i = 0; i < N; i++) out[i] = acc[i];
}

// out[i][0..63 or fewer] = sum over keys [begin, end) of weight[i][t - begin] * V[t], t ascending.
template <int N, int W>
static inline void weigh_values(const Cache& c, int head, const int32_t* pages, int begin, int end,
                                int offset, const float (*weight)[kChunk], Partial* const* out) {
  Vec acc[N][W];
#pragma GCC unroll 8
  for (int i = 0; i < N; i++)
#pragma GCC unroll 4
    for (int j = 0; j < W; j++) acc[i][j] = zero();
  for (int page = begin; page < end; page += kPage) {
    const uint16_t* v = c.value(pages[page / kPage], head) + offset;
    int stop = end - page < kPage ? end - page : kPage;
    for (int t = 0; t < stop; t++, v += c.dim) {
      Vec x[W];
#pragma GCC unroll 4
      for (int j = 0; j < W; j++) x[j] = load_bf16(v + j * kLanes);
#pragma GCC unroll 8
      for (int i = 0; i < N; i++) {
        Vec e = set1(weight[i][page - begin + t]);
#pragma GCC unroll 4
        for (int j = 0; j < W; j++) acc[i][j] = fma(e, x[j], acc[i][j]);
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < N; i++)
#pragma GCC unroll 4
    for (int j = 0; j < W; j++) store(out[i]->out + offset + j * kLanes, acc[i][j]);
}

// N queries (at most kQueries) against keys [begin, begin + 256) of a sequence.
// q[i]: [D], already scaled; last[i]: the last position that query i may see.
template <int N>
static void attend_chunk(const Cache& c, int head, const int32_t* pages, int begin,
                         const float* const* q, const int* last, Partial* const* out) {
  int end = 0;
  for (int i = 0; i < N; i++) end = last[i] + 1 > end ? last[i] + 1 : end;
  if (end > begin + kChunk) end = begin + kChunk;
  alignas(64) float score[N][kChunk];
  int count = (end - begin + kPage - 1) / kPage;
  Vec top[N];
  for (int i = 0; i < N; i++) top[i] = set1(-INFINITY);
  for (int p = 0; p < count; p++) {
    Vec s[N];
    score_page<N>(c.key(pages[begin / kPage + p], head), c.dim, q, s);
    for (int i = 0; i < N; i++) {
      store(score[i] + p * kPage, s[i]);
      int seen = last[i] + 1 - (begin + p * kPage);  // keys of this page that query i may see
      for (int j = seen < 0 ? 0 : seen; j < kPage; j++) score[i][p * kPage + j] = -INFINITY;
      top[i] = max(top[i], load(score[i] + p * kPage));
    }
  }
  for (int i = 0; i < N; i++) {
    float m = largest(top[i]);
    Vec shift = set1(m == -INFINITY ? 0.f : m), total = zero();
    for (int p = 0; p < count; p++) {
      Vec e = exp(sub(load(score[i] + p * kPage), shift));
      store(score[i] + p * kPage, e);
      total = add(total, e);
    }
    out[i]->m = m;
    out[i]->l = sum(total);
  }
  int offset = 0;
  for (; offset + 4 * kLanes <= c.dim; offset += 4 * kLanes)
    weigh_values<N, 4>(c, head, pages, begin, end, offset, score, out);
  for (; offset < c.dim; offset += kLanes)
    weigh_values<N, 1>(c, head, pages, begin, end, offset, score, out);
}

static inline void attend_queries(const Cache& c, int head, const int32_t* pages, int begin,
                                  int queries, const float* const* q, const int* last,
                                  Partial* const* out) {
  switch (queries) {
    case 1: return attend_chunk<1>(c, head, pages, begin, q, last, out);
    case 2: return attend_chunk<2>(c, head, pages, begin, q, last, out);
    case 3: return attend_chunk<3>(c, head, pages, begin, q, last, out);
    case 4: return attend_chunk<4>(c, head, pages, begin, q, last, out);
    case 5: return attend_chunk<5>(c, head, pages, begin, q, last, out);
    case 6: return attend_chunk<6>(c, head, pages, begin, q, last, out);
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
  store(a, exp(set1(state.m - m)));
  store(b, exp(set1(chunk.m - m)));
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
