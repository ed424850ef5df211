// The CPU library: a list of operations ("program") run over one batch by a pool of threads.
//
// Python builds the program once, with pointers to weights and static buffers, and calls run() once
// a forward pass. Each operation is cut into tasks whose results don't depend on which thread runs
// them, nor on what else is in the batch.
#include <cstdlib>
#include <new>

#include "../linear_q/cpu.h"
#include "../paged_attention/cpu.h"
#include "../rms_norm/cpu.h"
#include "../rope/cpu.h"
#include "../silu_mul/cpu.h"
#include "pool.h"

using namespace agentspec;

extern "C" {

enum OpKind : int32_t {
  kEmbed = 0,      // out[t] = table[ids[t]]                     a=table out=y  n=dim
  kNormQuant = 1,  // out = quantize(rms_norm(a) * b)            a=x b=w  n=dim f=eps
  kQuant = 2,      // out = quantize(a)                          a=x  n=dim
  kLinear = 3,     // y (+)= W x                                 a=W out=y  n,k  flag 1: q4, 2: add
  kRopeWrite = 4,  // q rotated in place, k and v to the cache   a=qkv b=cos c=sin  n=heads
  kAttend = 5,     // y = attention(q)                           a=qkv out=y  n=heads
  kSiluQuant = 6,  // out = quantize(silu(gate) * up)            a=gate_up  n=dim
  kGather = 7,     // y[r] = x[rows[r]]                          a=x out=y  n=dim
  kTap = 8,        // y[t][layer : layer+n] = x[t]               a=x out=y  n=dim k=row of y
};

struct Op {
  int32_t kind, flags;
  int32_t n, k;
  int32_t layer, logits;  // logits 1: works on the gathered rows instead of all rows
  float f;
  int32_t reserved;
  const void *a, *b, *c;
  void* out;
};

struct Batch {
  int32_t tokens, gathered, spans, reserved;
  const int32_t* ids;
  const int32_t* rows;    // [gathered]
  const Span* span;       // [spans]
  const int32_t* pages;   // all spans' page tables, one after the other
};

struct Model {
  int32_t heads, kv_heads, dim, num_pages;
  uint16_t *k, *v;        // [layers][P][Hkv][D][16] and [layers][P][Hkv][16][D]
  Quantized x;            // shared buffer for quantised activations
};

struct Runner {
  Pool pool;
  Partial* partial = nullptr;
  int64_t partials = 0;
  explicit Runner(int threads) : pool(threads) {}
  ~Runner() { std::free(partial); }
};

int agentspec_version() { return 1; }
const char* agentspec_isa() {
#if defined(__AVX512VNNI__)
  return "avx512vnni";
#elif defined(__AVX2__)
  return "avx2";
#else
  return "portable";
#endif
}
Runner* agentspec_create(int threads) { return new (std::nothrow) Runner(threads); }
void agentspec_destroy(Runner* r) { delete r; }

}  // extern "C"

namespace {

struct Run {
  Runner* runner;
  const Model* model;
  const Op* ops;
  int count;
  const Batch* batch;
};

constexpr int kDecodeRows = 16;  // spans up to this many rows attend chunk-parallel

constexpr int kBlock = 16;       // rows of a longer span that attend as one task

// Short spans: one task for each (kv head, chunk), a partial for each (row, head, chunk).
// Long spans: one task for each (kv head, block of rows), chunks merged as they come.

int64_t attend_tasks(const Span& s, int kv_heads) {
  int last = s.start + s.rows;
  if (s.rows <= kDecodeRows) return (int64_t)kv_heads * ((last + kChunk - 1) / kChunk);
  return (int64_t)kv_heads * ((s.rows + kBlock - 1) / kBlock);
}

int64_t partial_slots(const Span& s, int heads) {
  if (s.rows > kDecodeRows) return 0;
  return (int64_t)s.rows * heads * ((s.start + s.rows + kChunk - 1) / kChunk);
}

struct Tile {
  const float* q[kQueries];
  int last[kQueries];
  Partial* out[kQueries];
  int count = 0;
};

void attend_decode(const Run& run, const Op& op, const Cache& cache, const Span& s, int64_t task,
                   Partial* partial) {
  const Model& m = *run.model;
  int group = m.heads / m.kv_heads, chunks = (s.start + s.rows + kChunk - 1) / kChunk;
  int head = task / chunks, chunk = task % chunks;
  const int32_t* pages = run.batch->pages + s.pages;
  const float* qkv = (const float*)op.a;
  int width = (m.heads + 2 * m.kv_heads) * m.dim;
  Tile tile;
  for (int pair = 0; pair < s.rows * group; pair++) {
    int row = pair / group, h = head * group + pair % group;
    tile.q[tile.count] = qkv + (int64_t)(s.row + row) * width + h * m.dim;
    tile.last[tile.count] = s.start + row;
    tile.out[tile.count] = partial + ((int64_t)(row * m.heads + h)) * chunks + chunk;
    if (++tile.count == kQueries || pair + 1 == s.rows * group) {
      attend_queries(cache, head, pages, chunk * kChunk, tile.count, tile.q, tile.last, tile.out);
      tile.count = 0;
    }
  }
}

void attend_prefill(const Run& run, const Op& op, const Cache& cache, const Span& s, int64_t task) {
  const Model& m = *run.model;
  int group = m.heads / m.kv_heads;
  int blocks = (s.rows + kBlock - 1) / kBlock;
  int head = task / blocks, first = (task % blocks) * kBlock;
  int rows = s.rows - first < kBlock ? s.rows - first : kBlock;
  const int32_t* pages = run.batch->pages + s.pages;
  const float* qkv = (const float*)op.a;
  int width = (m.heads + 2 * m.kv_heads) * m.dim;
  Partial state[kQueries], chunk[kQueries];
  for (int pair = 0; pair < rows * group; pair += kQueries) {
    Tile tile;
    for (int i = pair; i < rows * group && tile.count < kQueries; i++, tile.count++) {
      int row = first + i / group, h = head * group + i % group;
      tile.q[tile.count] = qkv + (int64_t)(s.row + row) * width + h * m.dim;
      tile.last[tile.count] = s.start + row;
      tile.out[tile.count] = &chunk[tile.count];
      state[tile.count].m = -INFINITY;
    }
    int end = tile.last[tile.count - 1] + 1;
    for (int begin = 0; begin < end; begin += kChunk) {
      attend_queries(cache, head, pages, begin, tile.count, tile.q, tile.last, tile.out);
      for (int i = 0; i < tile.count; i++) merge(state[i], chunk[i], m.dim);
    }
    for (int i = 0; i < tile.count; i++) {
      int row = first + (pair + i) / group, h = head * group + (pair + i) % group;
      finish(state[i], m.dim, (float*)op.out + ((int64_t)(s.row + row) * m.heads + h) * m.dim);
    }
  }
}

void attend(Pool& pool, const Run& run, const Op& op) {
  const Model& m = *run.model;
  const Batch& b = *run.batch;
  int64_t page_floats = (int64_t)m.kv_heads * m.dim * kPage;
  Cache cache{m.k + op.layer * m.num_pages * page_floats, m.v + op.layer * m.num_pages * page_floats,
              m.kv_heads, m.dim};
  int64_t total = 0;
  for (int i = 0; i < b.spans; i++) total += attend_tasks(b.span[i], m.kv_heads);
  for (int64_t t; (t = pool.take(1)) < total;) {
    int64_t slot = 0;
    for (int i = 0; i < b.spans; i++) {
      const Span& s = b.span[i];
      int64_t tasks = attend_tasks(s, m.kv_heads);
      if (t < tasks) {
        if (s.rows <= kDecodeRows)
          attend_decode(run, op, cache, s, t, run.runner->partial + slot);
        else
          attend_prefill(run, op, cache, s, t);
        break;
      }
      t -= tasks;
      slot += partial_slots(s, m.heads);
    }
  }
  pool.barrier();
  for (int64_t t; (t = pool.take(4)) < b.tokens * m.heads;)
    for (int64_t i = t; i < t + 4 && i < b.tokens * m.heads; i++) {
      int row = i / m.heads;
      int64_t slot = 0;
      for (int j = 0; j < b.spans; j++) {
        const Span& s = b.span[j];
        if (row >= s.row + s.rows) {
          slot += partial_slots(s, m.heads);
          continue;
        }
        if (s.rows > kDecodeRows) break;
        int chunks = (s.start + s.rows + kChunk - 1) / kChunk;
        const Partial* p =
            run.runner->partial + slot + ((row - s.row) * m.heads + i % m.heads) * (int64_t)chunks;
        Partial state;
        state.m = -INFINITY;
        for (int c = 0; c < chunks; c++) merge(state, p[c], m.dim);
        finish(state, m.dim, (float*)op.out + i * m.dim);
        break;
      }
    }
}

void rope_write(const Run& run, const Op& op, int row) {
  const Model& m = *run.model;
  const Batch& b = *run.batch;
  const Span* s = b.span;
  while (row >= s->row + s->rows) s++;
  int position = s->start + row - s->row, half = m.dim / 2;
  const float *cos = (const float*)op.b + (int64_t)position * half,
              *sin = (const float*)op.c + (int64_t)position * half;
  float* qkv = (float*)op.a + (int64_t)row * (m.heads + 2 * m.kv_heads) * m.dim;
  float scale = 1.f / std::sqrt((float)m.dim);
  int64_t page_floats = (int64_t)m.kv_heads * m.dim * kPage;
  Cache cache{m.k + op.layer * m.num_pages * page_floats, m.v + op.layer * m.num_pages * page_floats,
              m.kv_heads, m.dim};
  for (int h = 0; h < m.heads + m.kv_heads; h++) rope_head(qkv + h * m.dim, cos, sin, m.dim, qkv + h * m.dim);
  for (int i = 0; i < m.heads * m.dim; i += kLanes) store(qkv + i, mul(load(qkv + i), set1(scale)));
  int page = b.pages[s->pages + position / kPage];
  for (int h = 0; h < m.kv_heads; h++)
    write_kv(cache, page, position % kPage, h, qkv + (m.heads + h) * m.dim,
             qkv + (m.heads + m.kv_heads + h) * m.dim);
}

void row_op(const Run& run, const Op& op, int row) {
  const Model& m = *run.model;
  alignas(64) thread_local float buffer[16384];
  int groups = op.n / kGroup;
  int8_t* codes = m.x.codes + (int64_t)row * op.n;
  float *scale = m.x.scale + (int64_t)row * groups, *xsum = m.x.xsum + (int64_t)row * groups;
  const float* a = (const float*)op.a;
  switch (op.kind) {
    case kEmbed:
      std::memcpy((float*)op.out + (int64_t)row * op.n, a + (int64_t)run.batch->ids[row] * op.n,
                  sizeof(float) * op.n);
      break;
    case kGather:
      std::memcpy((float*)op.out + (int64_t)row * op.n, a + (int64_t)run.batch->rows[row] * op.n,
                  sizeof(float) * op.n);
      break;
    case kTap:
      std::memcpy((float*)op.out + (int64_t)row * op.k + op.layer, a + (int64_t)row * op.n,
                  sizeof(float) * op.n);
      break;
    case kNormQuant:
      rms_norm_row(a + (int64_t)row * op.n, (const float*)op.b, op.n, op.f, buffer);
      quantize_row(buffer, op.n, codes, scale, xsum);
      break;
    case kQuant:
      quantize_row(a + (int64_t)row * op.n, op.n, codes, scale, xsum);
      break;
    case kSiluQuant:
      silu_mul_row(a + (int64_t)row * 2 * op.n, op.n, buffer);
      quantize_row(buffer, op.n, codes, scale, xsum);
      break;
    case kRopeWrite:
      rope_write(run, op, row);
      break;
  }
}

void work(Pool& pool, void* argument) {
  // A copy: the caller's may be gone when a thread leaves the last barrier after the others.
  const Run run = *(const Run*)argument;
  for (int i = 0; i < run.count; i++) {
    const Op& op = run.ops[i];
    int rows = op.logits ? run.batch->gathered : run.batch->tokens;
    if (op.kind == kLinear) {
      int64_t blocks = op.n / kRows, grain = blocks / (pool.threads() * 8) + 1;
      for (int64_t t; (t = pool.take(grain)) < blocks;)
        for (int64_t block = t; block < t + grain && block < blocks; block++)
          linear_block(op.flags & 1, (const uint8_t*)op.a, block, op.n, op.k, rows, run.model->x,
                       (float*)op.out, op.flags & 2);
    } else if (op.kind == kAttend) {
      attend(pool, run, op);
    } else {
      for (int64_t row; (row = pool.take(1)) < rows;) row_op(run, op, row);
    }
    pool.barrier();
  }
}

}  // namespace

extern "C" int agentspec_run(Runner* runner, const Model* model, const Op* ops, int count,
                             const Batch* batch) {
  if (count < 1) return 0;
  int64_t need = 0;
  for (int i = 0; i < batch->spans; i++) need += partial_slots(batch->span[i], model->heads);
  if (need > runner->partials) {
    std::free(runner->partial);
    runner->partial = (Partial*)std::malloc(need * sizeof(Partial));
    runner->partials = runner->partial ? need : 0;
    if (!runner->partial) return 1;
  }
  Run run{runner, model, ops, count, batch};
  runner->pool.run(work, &run);
  return 0;
}
