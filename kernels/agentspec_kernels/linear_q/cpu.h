// Linear layer over 4-bit (Q4_1) or 8-bit (Q8_0) group-quantised weights and int8 activations.
//
// y[t][n] = sum over groups g of 32 inputs: xs[t][g] * (d[n][g] * S + m[n][g] * X), where S is the
// exact int32 sum of weight times activation codes and X the sum of the activation codes. Groups are
// added in ascending order, so a row's bits depend on that row and these weights only.
//
// Packed weights: blocks of 16 output rows; in a block, one record a group.
//   q4: 256 bytes codes, 16 fp16 d, 16 fp16 m.  Byte [s*64 + lane*4 + j] holds row `lane`, input
//       8s+j in its low and 8s+4+j in its high nibble.
//   q8: 512 bytes codes (code + 128). Byte [s*64 + lane*4 + j]: row `lane`, input 4s+j. Behind a
//       block's records follow the 16 fp16 d of each.
#pragma once
#include "../_cpu/simd.h"

namespace agentspec {

constexpr int kGroup = 32;
constexpr int kRows = 16;
constexpr int kQ4Record = 256 + 32 + 32;
constexpr int kQ8Record = 512;
constexpr int kScales = 32;  // bytes of 16 fp16
constexpr int kAhead = 16;   // records that are fetched in advance
// Rows of x that share one pass over a block's weights.
#if defined(__AVX2__)
constexpr int kTile = 8;
#else
constexpr int kTile = 2;
#endif

// Activations of a batch: codes [T][K] int8, scale [T][K/32], xsum [T][K/32] = scale * sum(codes).
struct Quantized {
  int8_t* codes;
  float* scale;
  float* xsum;
};

// Quantises one row of K floats: scale = max|x| / 127 for each group of 32.
static inline void quantize_row(const float* x, int k, int8_t* codes, float* scale, float* xsum) {
  for (int g = 0; g < k / kGroup; g++) {
    const float* p = x + g * kGroup;
    Vec a = load(p), b = load(p + kLanes);
    float top = largest(max(abs(a), abs(b)));
    float inverse = top > 0 ? 127.f / top : 0.f;
    a = round(mul(a, set1(inverse)));
    b = round(mul(b, set1(inverse)));
    store_int8(codes + g * kGroup, a);
    store_int8(codes + g * kGroup + kLanes, b);
    scale[g] = top / 127.f;
    xsum[g] = scale[g] * sum(add(a, b));  // small integers: the sum is exact
  }
}

// The exact part: an int32 sum for each of sixteen output rows, one step of four inputs at a time.
#if defined(__AVX512VNNI__)

struct Sum {
  __m512i v;
};
struct Step {
  __m512i v;
};
static inline Sum empty() { return {_mm512_setzero_si512()}; }
template <bool FOUR>
static inline Step step(const uint8_t* w, int s) {
  if (!FOUR) return {_mm512_loadu_si512(w + 64 * s)};
  __m512i b = _mm512_loadu_si512(w + 64 * (s / 2));
  return {_mm512_and_si512(s % 2 ? _mm512_srli_epi16(b, 4) : b, _mm512_set1_epi8(15))};
}
template <bool FOUR>
static inline Sum multiply_add(Sum a, Step c, const int8_t* x) {
  int32_t four;
  std::memcpy(&four, x, 4);
  return {_mm512_dpbusd_epi32(a.v, c.v, _mm512_set1_epi32(four))};
}
static inline Vec value(Sum a) { return {_mm512_cvtepi32_ps(a.v)}; }

#elif defined(__AVX2__)

struct Sum {
  __m256i a, b;
};
struct Step {
  __m256i a, b;
};
static inline Sum empty() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
template <bool FOUR>
static inline Step step(const uint8_t* w, int s) {
  const __m256i* p = (const __m256i*)(w + 64 * (FOUR ? s / 2 : s));
  __m256i a = _mm256_loadu_si256(p), b = _mm256_loadu_si256(p + 1);
  if (!FOUR) return {a, b};
  __m256i mask = _mm256_set1_epi8(15);
  if (s % 2) a = _mm256_srli_epi16(a, 4), b = _mm256_srli_epi16(b, 4);
  return {_mm256_and_si256(a, mask), _mm256_and_si256(b, mask)};
}
// Four neighbouring unsigned codes times signed codes, to one int32. With 4-bit codes the 16-bit
// pair sums fit (15 * 127 * 2); with 8-bit codes they would saturate (255 * 127 * 2), so even and
// odd bytes are widened first.
template <bool FOUR>
static inline __m256i dot4(__m256i u, __m256i x) {
  if (FOUR) return _mm256_madd_epi16(_mm256_maddubs_epi16(u, x), _mm256_set1_epi16(1));
  __m256i even = _mm256_and_si256(u, _mm256_set1_epi16(255)), odd = _mm256_srli_epi16(u, 8);
  __m256i xe = _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8), xo = _mm256_srai_epi16(x, 8);
  return _mm256_add_epi32(_mm256_madd_epi16(even, xe), _mm256_madd_epi16(odd, xo));
}
template <bool FOUR>
static inline Sum multiply_add(Sum sum, Step c, const int8_t* x) {
  int32_t four;
  std::memcpy(&four, x, 4);
  __m256i xs = _mm256_set1_epi32(four);
  return {_mm256_add_epi32(sum.a, dot4<FOUR>(c.a, xs)), _mm256_add_epi32(sum.b, dot4<FOUR>(c.b, xs))};
}
static inline Vec value(Sum a) { return {_mm256_cvtepi32_ps(a.a), _mm256_cvtepi32_ps(a.b)}; }

#else

struct Sum {
  int32_t v[kRows];
};
struct Step {
  uint8_t v[64];
};
static inline Sum empty() { return {}; }
template <bool FOUR>
static inline Step step(const uint8_t* w, int s) {
  Step c;
  for (int i = 0; i < 64; i++)
    c.v[i] = !FOUR ? w[64 * s + i] : s % 2 ? w[64 * (s / 2) + i] >> 4 : w[64 * (s / 2) + i] & 15;
  return c;
}
template <bool FOUR>
static inline Sum multiply_add(Sum a, Step c, const int8_t* x) {
  for (int lane = 0; lane < kRows; lane++)
    for (int j = 0; j < 4; j++) a.v[lane] += (int)c.v[4 * lane + j] * x[j];
  return a;
}
static inline Vec value(Sum a) {
  Vec r;
  for (int i = 0; i < kRows; i++) r.v[i] = (float)a.v[i];
  return r;
}

#endif

// One block of 16 output rows for M rows of x. `y` is [M][stride]; ADD adds to what is there.
template <bool FOUR, int M>
static void linear_tile(const uint8_t* w, int k, const int8_t* codes, const float* scale,
                        const float* xsum, float* y, int64_t stride, bool accumulate) {
  constexpr int kRecord = FOUR ? kQ4Record : kQ8Record;
  int groups = k / kGroup;
  const uint8_t* scales = FOUR ? w + 256 : w + groups * kQ8Record;
  Vec acc[M];
#pragma GCC unroll 8
  for (int i = 0; i < M; i++) acc[i] = zero();
  for (int g = 0; g < groups; g++, w += kRecord, scales += FOUR ? kRecord : kScales) {
    for (int line = 0; line < kRecord; line += 64) prefetch(w + kAhead * kRecord + line);
    Sum sum[M];
#pragma GCC unroll 8
    for (int i = 0; i < M; i++) sum[i] = empty();
#pragma GCC unroll 8
    for (int s = 0; s < 8; s++) {
      Step c = step<FOUR>(w, s);
#pragma GCC unroll 8
      for (int i = 0; i < M; i++)
        sum[i] = multiply_add<FOUR>(sum[i], c, codes + (int64_t)i * k + g * kGroup + 4 * s);
    }
    Vec d = load_fp16((const uint16_t*)scales);
    Vec m = FOUR ? load_fp16((const uint16_t*)(scales + kScales)) : mul(d, set1(-128.f));
#pragma GCC unroll 8
    for (int i = 0; i < M; i++) {
      acc[i] = fma(mul(d, set1(scale[i * groups + g])), value(sum[i]), acc[i]);
      acc[i] = fma(m, set1(xsum[i * groups + g]), acc[i]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < M; i++)
    store(y + i * stride, accumulate ? add(load(y + i * stride), acc[i]) : acc[i]);
}

template <bool FOUR>
static void linear_rows(int m, const uint8_t* w, int k, const int8_t* codes, const float* scale,
                        const float* xsum, float* y, int64_t stride, bool accumulate) {
  switch (m) {
#define AGENTSPEC_CASE(M) \
  case M: return linear_tile<FOUR, M>(w, k, codes, scale, xsum, y, stride, accumulate);
    AGENTSPEC_CASE(1) AGENTSPEC_CASE(2)
#if defined(__AVX2__)
    AGENTSPEC_CASE(3) AGENTSPEC_CASE(4) AGENTSPEC_CASE(5)
    AGENTSPEC_CASE(6) AGENTSPEC_CASE(7) AGENTSPEC_CASE(8)
#endif
#undef AGENTSPEC_CASE
  }
}

// Output rows 16*block .. 16*block+15 for all T rows of x.
static inline void linear_block(bool four, const uint8_t* weights, int64_t block, int n, int k, int t,
                                const Quantized& x, float* y, bool accumulate) {
  int groups = k / kGroup;
  const uint8_t* w = weights + block * groups * (four ? kQ4Record : kQ8Record + kScales);
  for (int row = 0; row < t; row += kTile) {
    int m = t - row < kTile ? t - row : kTile;
    auto rows = four ? linear_rows<true> : linear_rows<false>;
    rows(m, w, k, x.codes + (int64_t)row * k, x.scale + (int64_t)row * groups,
         x.xsum + (int64_t)row * groups, y + (int64_t)row * n + block * kRows, n, accumulate);
  }
}

}  // namespace agentspec
