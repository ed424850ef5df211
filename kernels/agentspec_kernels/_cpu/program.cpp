// The CPU library: a list of operations ("program") run over one batch by a pool of threads.
//
// Python builds the program once, with pointers to weights and static buffers, and calls run() once
// a forward pass. Each operation is cut into tasks whose results don't depend on which thread runs
// them, nor on what else is in the batch.
#include <cstdlib>
#include <new>

#include "../draft_block/cpu.h"
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
  kAttend = 5,     // y = attention(q)                           a=qkv out=y  flag 1: a span is mutual
  kSiluQuant = 6,  // out = quantize(silu(gate) * up)            a=gate_up  n=dim
  kGather = 7,     // y[r] = x[rows[r]]                          a=x out=y  n=dim
  kTap = 8,        // y[t][layer : layer+n] = x[t]               a=x out=y  n=dim k=row of y
  kHeadNorm = 9,   // rms_norm of heads, in place                a=x b=w  n=row of x k=heads layer=column f=eps
  kWriteKv = 10,   // k rotated in place, k and v to the cache   a=x b=cos c=sin  n=row of x k=column of k
  kNorm = 11,      // y = rms_norm(a) * b                        a=x b=w out=y  n=dim f=eps
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
  const int32_t* parents; // all trees' parents, one after the other
};

struct Model {
  int32_t heads, kv_heads, dim, num_pages;
  uint16_t *k, *v;        // [layers][P][Hkv][D/2][16][2] and [layers][P][Hkv][8][D][2]
  Quantized x;            // shared buffer for quantised activations
};

// One program over its batch.
struct Job {
  const Model* model;
  const Op* ops;
  const Batch* batch;
  int32_t count, reserved;
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
#if defined(__AVX512BF16__)
  return "avx512bf16";
#elif defined(__AVX512VNNI__)
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

struct Call {
  Runner* runner;
  const Job* jobs;
  int count;
};

constexpr int kDecodeRows = 16;  // spans up to this many rows attend chunk-parallel

constexpr int kBlock = 16;       // rows of a longer span that attend as one task

// Short spans and trees: one task for each (kv head, chunk), a partial for each (row, head, chunk).
// Long spans: one task for each (kv head, block of rows), chunks merged as they come.

bool chunk_parallel(const Span& s) { return s.rows <= kDecodeRows || s.tree >= 0; }

int64_t attend_tasks(const Span& s, int kv_heads) {
  int last = s.start + s.rows;
  if (chunk_parallel(s)) return (int64_t)kv_heads * ((last + kChunk - 1) / kChunk);
  return (int64_t)kv_heads * ((s.rows + kBlock - 1) / kBlock);
}

int64_t partial_slots(const Span& s, int heads) {
  if (!chunk_parallel(s)) return 0;
  return (int64_t)s.rows * heads * ((s.start + s.rows + kChunk - 1) / kChunk);
}

// The parents of a tree's rows, or null: each row follows the one before it.
const int32_t* parents_of(const Run& run, const Span& s) {
  return s.tree < 0 ? nullptr : run.batch->parents + s.tree;
}

int position_of(const Run& run, const Span& s, int row) {
  const int32_t* parents = parents_of(run, s);
  if (!parents) return s.start + row;
  int path[kMaxPath];
  return s.start + path_to(parents, row, path) - 1;
}

// Up to kQueries queries of one kv head, and where their results go.
struct Tile {
  alignas(64) Weight q[kQueries][kMaxHead];
  int last[kQueries];
  Partial* out[kQueries];
  int count = 0;
};

// The queries [first, first + count) of a span's (row, query head of `head`) pairs, row by row.
void fill(Tile& tile, const Run& run, const Op& op, const Span& s, int head, int first, int count) {
  const Model& m = *run.model;
  int group = m.heads / m.kv_heads, width = (m.heads + 2 * m.kv_heads) * m.dim;
  tile.count = count;
  for (int i = 0; i < count; i++) {
    int row = (first + i) / group, h = head * group + (first + i) % group;
    const float* q = (const float*)op.a + (int64_t)(s.row + row) * width + h * m.dim;
    for (int d = 0; d < m.dim; d += kLanes) store_weights(tile.q[i] + d, load(q + d));
    tile.last[i] = op.flags & 1 ? s.start + s.rows - 1 : position_of(run, s, row);
  }
}

// A tile against the chunk at `begin`; `ahead`: whether the next chunk's keys come to the cache.
void attend_tile(const Tile& tile, const Run& run, const Span& s, const Cache& cache, int head,
                 int begin, bool ahead) {
  const int32_t* pages = run.batch->pages + s.pages;
  int left = (s.start + s.rows + kPage - 1) / kPage - (begin + kChunk) / kPage;
  if (left < 0 || !ahead) left = 0;
  int here = (s.start + s.rows + kPage - 1) / kPage - begin / kPage;
  Pages chunk(cache, head);
  chunk.add(pages + begin / kPage, here < kChunk / kPage ? here : kChunk / kPage);
  attend_queries(chunk, begin, tile.count, tile.q, tile.last, tile.out,
                 Ahead{pages + (begin + kChunk) / kPage, left});
}

// Tiles of nearly equal size: a last one of few queries would read all keys for them.
int tile_size(int queries) {
  int tiles = (queries + kQueries - 1) / kQueries;
  return (queries + tiles - 1) / tiles;
}

// How many rows of a span follow each other without a branch.
int straight_rows(const int32_t* parents, int rows) {
  int count = 1;
  while (count < rows && parents[count] == count - 1) count++;
  return count;
}

// One row of a tree against the chunk at `begin`, into which the tree reaches: the page that the
// context ends in and those behind it are made anew with the row's path in position order, so that
// the very operations of a chain follow. partial: of this row and chunk, for each query head.
void attend_path(const Run& run, const Op& op, const Cache& cache, const Span& s, int row, int head,
                 int begin, Partial* partial, int64_t stride) {
  constexpr int kOwn = kMaxPath / kPage + 2;
  alignas(64) thread_local uint16_t own_k[kOwn * kMaxHead * kPage], own_v[kOwn * kMaxHead * kPage];
  const Model& m = *run.model;
  const int32_t* table = run.batch->pages + s.pages;
  int path[kMaxPath], group = m.heads / m.kv_heads;
  int end = s.start + path_to(parents_of(run, s), row, path);
  if (end > begin + kChunk) end = begin + kChunk;
  int first = s.start > begin ? s.start / kPage * kPage : begin, size = m.dim * kPage;
  if (first < s.start) {
    std::memcpy(own_k, cache.key(table[first / kPage], head), size * sizeof(uint16_t));
    std::memcpy(own_v, cache.value(table[first / kPage], head), size * sizeof(uint16_t));
  }
  for (int p = first < s.start ? s.start : first; p < end; p++) {
    int from = s.start + path[p - s.start], page = table[from / kPage];
    int64_t to = (int64_t)((p - first) / kPage) * size;
    copy_slot(cache.key(page, head), cache.value(page, head), from % kPage, own_k + to, own_v + to,
              p % kPage, m.dim);
  }
  Pages pages(cache, head);
  pages.add(table + begin / kPage, (first - begin) / kPage);
  for (int p = first; p < end; p += kPage) {
    int64_t at = (int64_t)((p - first) / kPage) * size;
    pages.add(own_k + at, own_v + at);
  }
  Tile tile;
  for (int at = 0, count = tile_size(group); at < group; at += count) {
    fill(tile, run, op, s, head, row * group + at, group - at < count ? group - at : count);
    for (int i = 0; i < tile.count; i++)
      tile.out[i] = partial + (int64_t)(head * group + at + i) * stride;
    attend_queries(pages, begin, tile.count, tile.q, tile.last, tile.out, Ahead{nullptr, 0});
  }
}

void attend_decode(const Run& run, const Op& op, const Cache& cache, const Span& s, int64_t task,
                   Partial* partial) {
  const Model& m = *run.model;
  int group = m.heads / m.kv_heads, chunks = (s.start + s.rows + kChunk - 1) / kChunk;
  int head = task / chunks, chunk = task % chunks, rows = s.rows;
  if (s.tree >= 0 && (chunk + 1) * kChunk > s.start) {
    rows = straight_rows(parents_of(run, s), s.rows);
    for (int row = rows; row < s.rows; row++)
      attend_path(run, op, cache, s, row, head, chunk * kChunk,
                  partial + (int64_t)row * m.heads * chunks + chunk, chunks);
  }
  int queries = rows * group, size = tile_size(queries);
  Tile tile;
  for (int first = 0; first < queries; first += size) {
    fill(tile, run, op, s, head, first, queries - first < size ? queries - first : size);
    for (int i = 0; i < tile.count; i++) {
      int row = (first + i) / group, h = head * group + (first + i) % group;
      tile.out[i] = partial + ((int64_t)(row * m.heads + h)) * chunks + chunk;
    }
    attend_tile(tile, run, s, cache, head, chunk * kChunk, first + size >= queries);
  }
}

// Chunk by chunk, so that a chunk's keys and values stay in the cache for all tiles of the block.
void attend_prefill(const Run& run, const Op& op, const Cache& cache, const Span& s, int64_t task) {
  constexpr int kTiles = 16;
  const Model& m = *run.model;
  int group = m.heads / m.kv_heads, blocks = (s.rows + kBlock - 1) / kBlock;
  int head = task / blocks, first = (task % blocks) * kBlock;
  int rows = s.rows - first < kBlock ? s.rows - first : kBlock;
  thread_local Tile tiles[kTiles];
  thread_local Partial state[kTiles][kQueries];
  Partial chunk[kQueries];
  for (int pair = 0; pair < rows * group; pair += kTiles * kQueries) {
    int left = rows * group - pair, count = 0;
    if (left > kTiles * kQueries) left = kTiles * kQueries;
    for (int at = 0, size = tile_size(left); at < left; at += size, count++) {
      fill(tiles[count], run, op, s, head, first * group + pair + at, left - at < size ? left - at : size);
      for (int i = 0; i < tiles[count].count; i++) {
        tiles[count].out[i] = &chunk[i];
        state[count][i].m = -INFINITY;
      }
    }
    int end = tiles[count - 1].last[tiles[count - 1].count - 1] + 1;
    for (int begin = 0; begin < end; begin += kChunk)
      for (int t = 0; t < count; t++) {
        if (begin > tiles[t].last[tiles[t].count - 1]) continue;
        attend_tile(tiles[t], run, s, cache, head, begin, t + 1 == count);
        for (int i = 0; i < tiles[t].count; i++) merge(state[t][i], chunk[i], m.dim);
      }
    int index = first * group + pair;
    for (int t = 0; t < count; t++)
      for (int i = 0; i < tiles[t].count; i++, index++) {
        int row = index / group, h = head * group + index % group;
        finish(state[t][i], m.dim, (float*)op.out + ((int64_t)(s.row + row) * m.heads + h) * m.dim);
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
        if (chunk_parallel(s))
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
        if (!chunk_parallel(s)) break;
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

// One row's kv head with its query heads: rotated in place; q scaled; k and v to the cache.
void rope_write(const Run& run, const Op& op, int row, int head) {
  const Model& m = *run.model;
  const Batch& b = *run.batch;
  const Span* s = b.span;
  while (row >= s->row + s->rows) s++;
  int slot = s->start + row - s->row, position = position_of(run, *s, row - s->row);
  int half = m.dim / 2, group = m.heads / m.kv_heads;
  int64_t turn = (int64_t)(position + s->shift) * half;
  const float *cos = (const float*)op.b + turn, *sin = (const float*)op.c + turn;
  float* qkv = (float*)op.a + (int64_t)row * (m.heads + 2 * m.kv_heads) * m.dim;
  float *q = qkv + head * group * m.dim, *k = qkv + (m.heads + head) * m.dim;
  int64_t page_floats = (int64_t)m.kv_heads * m.dim * kPage;
  Cache cache{m.k + op.layer * m.num_pages * page_floats, m.v + op.layer * m.num_pages * page_floats,
              m.kv_heads, m.dim};
  for (int h = 0; h < group; h++) rope_head(q + h * m.dim, cos, sin, m.dim, q + h * m.dim);
  rope_head(k, cos, sin, m.dim, k);
  Vec scale = set1(kLog2E / std::sqrt((float)m.dim));
  for (int i = 0; i < group * m.dim; i += kLanes) store(q + i, mul(load(q + i), scale));
  write_kv(cache, b.pages[s->pages + slot / kPage], slot % kPage, head, k,
           qkv + (m.heads + m.kv_heads + head) * m.dim);
}

// The same for a row that has a key and a value only.
void write_kv_row(const Run& run, const Op& op, int row, int head) {
  const Model& m = *run.model;
  const Span* s = run.batch->span;
  while (row >= s->row + s->rows) s++;
  int position = s->start + row - s->row;
  int64_t turn = (int64_t)(position + s->shift) * (m.dim / 2);
  int64_t page_floats = (int64_t)m.kv_heads * m.dim * kPage;
  Cache cache{m.k + op.layer * m.num_pages * page_floats, m.v + op.layer * m.num_pages * page_floats,
              m.kv_heads, m.dim};
  float* k = (float*)op.a + (int64_t)row * op.n + op.k + head * m.dim;
  rope_head(k, (const float*)op.b + turn, (const float*)op.c + turn, m.dim, k);
  write_kv(cache, run.batch->pages[s->pages + position / kPage], position % kPage, head, k,
           k + m.kv_heads * m.dim);
}

// Tasks are (sixteen rows, kv head): threads that write the same page would fight for its lines.
void rope_all(Pool& pool, const Run& run, const Op& op, int rows) {
  int heads = run.model->kv_heads;
  int64_t tasks = (int64_t)((rows + kPage - 1) / kPage) * heads;
  for (int64_t t; (t = pool.take(1)) < tasks;) {
    int first = (t / heads) * kPage, last = first + kPage < rows ? first + kPage : rows;
    for (int row = first; row < last; row++)
      (op.kind == kRopeWrite ? rope_write : write_kv_row)(run, op, row, t % heads);
  }
}

void head_norm(const Run& run, const Op& op, int row) {
  int dim = run.model->dim;
  float* x = (float*)op.a + (int64_t)row * op.n + op.layer;
  for (int head = 0; head < op.k; head++, x += dim)
    scale_row(x, (const float*)op.b, dim, rms_scale(x, dim, op.f), x);
}

void copy_row(const Run& run, const Op& op, int row) {
  const float* a = (const float*)op.a;
  float* y = (float*)op.out;
  if (op.kind == kHeadNorm) return head_norm(run, op, row);
  if (op.kind == kNorm) {
    const float* x = a + (int64_t)row * op.n;
    return scale_row(x, (const float*)op.b, op.n, rms_scale(x, op.n, op.f), y + (int64_t)row * op.n);
  }
  int64_t from = op.kind == kEmbed    ? run.batch->ids[row]
                 : op.kind == kGather ? run.batch->rows[row]
                                      : row;
  int64_t to = op.kind == kTap ? (int64_t)row * op.k + op.layer : (int64_t)row * op.n;
  std::memcpy(y + to, a + from * op.n, sizeof(float) * op.n);
}

// The groups [begin, end) of one row's int8 activations.
void quantize_part(const Run& run, const Op& op, int row, int begin, int end) {
  alignas(64) thread_local float buffer[16384];
  const Quantized& x = run.model->x;
  int groups = op.n / kGroup, first = begin * kGroup, count = (end - begin) * kGroup;
  const float* a = (const float*)op.a;
  const float* from = buffer;
  if (op.kind == kNormQuant) {
    const float* p = a + (int64_t)row * op.n;
    float scale = rms_scale(p, op.n, op.f);
    scale_row(p + first, (const float*)op.b + first, count, scale, buffer);
  } else if (op.kind == kSiluQuant) {
    const float* gate = a + (int64_t)row * 2 * op.n + first;
    silu_mul_row(gate, gate + op.n, count, buffer);
  } else {
    from = a + (int64_t)row * op.n + first;
  }
  int64_t at = (int64_t)row * groups + begin;
  quantize_row(from, count, x.codes + at * kGroup, x.scale + at, x.xsum + at);
}

// Tasks are a few neighbouring rows, whose scales share cache lines, or parts of rows where there
// are few.
void quantize_all(Pool& pool, const Run& run, const Op& op, int rows) {
  int groups = op.n / kGroup, threads = pool.threads();
  int parts = rows < 2 * threads ? threads : 1;
  if (parts > groups) parts = groups;
  int64_t tasks = (int64_t)rows * parts, grain = (tasks + threads - 1) / threads;
  if (grain > 16) grain = 16;
  for (int64_t first; (first = pool.take(grain)) < tasks;)
    for (int64_t t = first; t < first + grain && t < tasks; t++) {
      int part = t % parts;
      quantize_part(run, op, t / parts, part * groups / parts, (part + 1) * groups / parts);
    }
}

void linear_all(Pool& pool, const Run& run, const Op& op, int rows) {
  int64_t blocks = op.n / kRows, grain = blocks / (pool.threads() * 8) + 1;
  for (int64_t t; (t = pool.take(grain)) < blocks;)
    for (int64_t block = t; block < t + grain && block < blocks; block++)
      linear_block(op.flags & 1, (const uint8_t*)op.a, block, op.n, op.k, rows, run.model->x,
                   (float*)op.out, op.flags & 2);
}

void run_ops(Pool& pool, const Run& run) {
  for (int i = 0; i < run.count; i++) {
    const Op& op = run.ops[i];
    int rows = op.logits ? run.batch->gathered : run.batch->tokens;
    switch (op.kind) {
      case kLinear:
        linear_all(pool, run, op, rows);
        break;
      case kAttend:
        attend(pool, run, op);
        break;
      case kRopeWrite:
      case kWriteKv:
        rope_all(pool, run, op, rows);
        break;
      case kNormQuant:
      case kQuant:
      case kSiluQuant:
        quantize_all(pool, run, op, rows);
        break;
      default:
        for (int64_t row; (row = pool.take(1)) < rows;) copy_row(run, op, row);
    }
    pool.barrier();
  }
}

void work(Pool& pool, void* argument) {
  // Copies: the caller's may be gone when a thread leaves the last barrier after the others.
  const Call call = *(const Call*)argument;
  for (int i = 0; i < call.count; i++) {
    const Job job = call.jobs[i];
    run_ops(pool, Run{call.runner, job.model, job.ops, job.count, job.batch});
  }
}

}  // namespace

extern "C" int agentspec_draft_chain(const DraftHead* head, const DraftChain* chain) {
  return draft_chain(*head, *chain);
}

// Runs the jobs one after the other; the threads are woken once. Each has at least one operation.
extern "C" int agentspec_run(Runner* runner, const Job* jobs, int count) {
  int64_t need = 0;
  for (int j = 0; j < count; j++) {
    const Batch& batch = *jobs[j].batch;
    int64_t here = 0;
    for (int i = 0; i < batch.spans; i++)
      here += partial_slots(batch.span[i], jobs[j].model->heads);
    if (here > need) need = here;
  }
  if (need > runner->partials) {
    std::free(runner->partial);
    runner->partial = (Partial*)std::malloc(need * sizeof(Partial));
    runner->partials = runner->partial ? need : 0;
    if (!runner->partial) return 1;
  }
  Call call{runner, jobs, count};
  runner->pool.run(work, &call);
  return 0;
}
