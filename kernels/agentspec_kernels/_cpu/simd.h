// Sixteen-lane vectors over AVX-512, AVX2 and plain C++. Every operation is lane by lane and every
// reduction has one fixed order, so a result never depends on how many rows are in flight.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

namespace agentspec {

constexpr int kLanes = 16;

// Into the second-level cache: it waits for more lines at a time than the first level does, which on
// Zen 4 is 1.6 times the bandwidth of one thread.
static inline void prefetch(const void* p) { __builtin_prefetch(p, 0, 2); }

#if defined(__AVX512F__)

struct Vec {
  __m512 v;
};
static inline Vec zero() { return {_mm512_setzero_ps()}; }
static inline Vec set1(float a) { return {_mm512_set1_ps(a)}; }
static inline Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
static inline void store(float* p, Vec a) { _mm512_storeu_ps(p, a.v); }
static inline Vec add(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
static inline Vec sub(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
static inline Vec mul(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
static inline Vec div(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
static inline Vec max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
static inline Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
static inline Vec abs(Vec a) { return {_mm512_abs_ps(a.v)}; }
static inline Vec round(Vec a) { return {_mm512_roundscale_ps(a.v, 8)}; }
static inline Vec load_fp16(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p))};
}
static inline Vec scale_by_power_of_two(Vec a, Vec n) {  // a * 2^n, n integral and in range
  return {_mm512_scalef_ps(a.v, n.v)};
}
static inline Vec zero_below(Vec value, Vec x, float floor) {  // value where x >= floor, else 0
  __mmask16 keep = _mm512_cmp_ps_mask(x.v, _mm512_set1_ps(floor), _CMP_GE_OQ);
  return {_mm512_maskz_mov_ps(keep, value.v)};
}
static inline void store_int8(int8_t* p, Vec a) {  // a integral, within [-127, 127]
  _mm_storeu_si128((__m128i*)p, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(a.v)));
}

#elif defined(__AVX2__)

struct Vec {
  __m256 a, b;
};
static inline Vec zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
static inline Vec set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
static inline Vec load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
static inline void store(float* p, Vec x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
static inline Vec add(Vec x, Vec y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
static inline Vec sub(Vec x, Vec y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
static inline Vec mul(Vec x, Vec y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
static inline Vec div(Vec x, Vec y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
static inline Vec max(Vec x, Vec y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
static inline Vec fma(Vec x, Vec y, Vec z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
static inline Vec abs(Vec x) {
  __m256 mask = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  return {_mm256_and_ps(x.a, mask), _mm256_and_ps(x.b, mask)};
}
static inline Vec round(Vec x) { return {_mm256_round_ps(x.a, 8), _mm256_round_ps(x.b, 8)}; }
static inline Vec load_fp16(const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)),
          _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(p + 8)))};
}
static inline __m256 scale8(__m256 a, __m256 n) {
  __m256i e = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), e));
}
static inline Vec scale_by_power_of_two(Vec x, Vec n) {
  return {scale8(x.a, n.a), scale8(x.b, n.b)};
}
static inline Vec zero_below(Vec value, Vec x, float floor) {
  __m256 f = _mm256_set1_ps(floor);
  return {_mm256_and_ps(value.a, _mm256_cmp_ps(x.a, f, _CMP_GE_OQ)),
          _mm256_and_ps(value.b, _mm256_cmp_ps(x.b, f, _CMP_GE_OQ))};
}
static inline void store_int8(int8_t* p, Vec x) {
  int32_t t[16];
  _mm256_storeu_si256((__m256i*)t, _mm256_cvtps_epi32(x.a));
  _mm256_storeu_si256((__m256i*)(t + 8), _mm256_cvtps_epi32(x.b));
  for (int i = 0; i < 16; i++) p[i] = (int8_t)t[i];
}

#else

struct Vec {
  float v[kLanes];
};
#define AGENTSPEC_LANES(EXPR)                  \
  Vec r;                                       \
  for (int i = 0; i < kLanes; i++) r.v[i] = EXPR; \
  return r
static inline Vec set1(float a) { AGENTSPEC_LANES(a); }
static inline Vec zero() { return set1(0.f); }
static inline Vec load(const float* p) { AGENTSPEC_LANES(p[i]); }
static inline void store(float* p, Vec a) {
  for (int i = 0; i < kLanes; i++) p[i] = a.v[i];
}
static inline Vec add(Vec a, Vec b) { AGENTSPEC_LANES(a.v[i] + b.v[i]); }
static inline Vec sub(Vec a, Vec b) { AGENTSPEC_LANES(a.v[i] - b.v[i]); }
static inline Vec mul(Vec a, Vec b) { AGENTSPEC_LANES(a.v[i] * b.v[i]); }
static inline Vec div(Vec a, Vec b) { AGENTSPEC_LANES(a.v[i] / b.v[i]); }
static inline Vec max(Vec a, Vec b) { AGENTSPEC_LANES(a.v[i] > b.v[i] ? a.v[i] : b.v[i]); }
static inline Vec fma(Vec a, Vec b, Vec c) { AGENTSPEC_LANES(a.v[i] * b.v[i] + c.v[i]); }
static inline Vec abs(Vec a) { AGENTSPEC_LANES(std::fabs(a.v[i])); }
static inline Vec round(Vec a) { AGENTSPEC_LANES(std::nearbyintf(a.v[i])); }
static inline float from_bits(uint32_t u) {
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}
static inline float half(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = (h >> 10) & 31, m = h & 1023;
  if (e == 0) {
    float f = std::ldexp((float)m, -24);
    return sign ? -f : f;
  }
  return from_bits(sign | (e == 31 ? 0x7f800000u | (m << 13) : ((e + 112) << 23) | (m << 13)));
}
static inline Vec load_fp16(const uint16_t* p) { AGENTSPEC_LANES(half(p[i])); }
static inline Vec scale_by_power_of_two(Vec a, Vec n) {
  AGENTSPEC_LANES(std::ldexp(a.v[i], (int)n.v[i]));
}
static inline Vec zero_below(Vec value, Vec x, float floor) {
  AGENTSPEC_LANES(x.v[i] >= floor ? value.v[i] : 0.f);
}
static inline void store_int8(int8_t* p, Vec a) {
  for (int i = 0; i < kLanes; i++) p[i] = (int8_t)a.v[i];
}
#undef AGENTSPEC_LANES

#endif

// Fixed order: halves are folded onto each other, 16 -> 8 -> 4 -> 2 -> 1.
#if defined(__AVX2__)

static inline __m256 low(Vec a) {
#if defined(__AVX512F__)
  return _mm512_castps512_ps256(a.v);
#else
  return a.a;
#endif
}
static inline __m256 high(Vec a) {
#if defined(__AVX512F__)
  return _mm512_extractf32x8_ps(a.v, 1);
#else
  return a.b;
#endif
}
static inline float sum(Vec a) {
  __m256 eight = _mm256_add_ps(low(a), high(a));
  __m128 t = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  t = _mm_add_ps(t, _mm_movehl_ps(t, t));
  return _mm_cvtss_f32(_mm_add_ss(t, _mm_shuffle_ps(t, t, 1)));
}
static inline float largest(Vec a) {
  __m256 eight = _mm256_max_ps(low(a), high(a));
  __m128 t = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  t = _mm_max_ps(t, _mm_movehl_ps(t, t));
  return _mm_cvtss_f32(_mm_max_ss(t, _mm_shuffle_ps(t, t, 1)));
}

#else

static inline float sum(Vec a) {
  for (int half = 8; half; half /= 2)
    for (int i = 0; i < half; i++) a.v[i] += a.v[i + half];
  return a.v[0];
}
static inline float largest(Vec a) {
  for (int half = 8; half; half /= 2)
    for (int i = 0; i < half; i++) a.v[i] = a.v[i] > a.v[i + half] ? a.v[i] : a.v[i + half];
  return a.v[0];
}

#endif

// e^x: Cody-Waite reduction and a degree-6 polynomial; exactly 0 below -87.
static inline Vec exp(Vec x) {
  Vec y = max(x, set1(-87.f));
  Vec n = round(mul(y, set1(1.44269504088896341f)));
  Vec r = fma(n, set1(-0.693359375f), y);
  r = fma(n, set1(2.12194440e-4f), r);
  Vec p = set1(1.9875691500e-4f);
  p = fma(p, r, set1(1.3981999507e-3f));
  p = fma(p, r, set1(8.3334519073e-3f));
  p = fma(p, r, set1(4.1665795894e-2f));
  p = fma(p, r, set1(1.6666665459e-1f));
  p = fma(p, r, set1(5.0000001201e-1f));
  p = fma(p, mul(r, r), add(r, set1(1.f)));
  return zero_below(scale_by_power_of_two(p, n), x, -87.f);
}

// 2^x for x <= 0 to 1.1e-7: a polynomial of degree 5 around the nearest integer; 0 below -125.
static inline Vec exp2_negative(Vec x) {
  Vec n = round(x), r = sub(x, n);
  Vec p = set1(1.326472731307149e-3f);
  p = fma(p, r, set1(9.671512991189957e-3f));
  p = fma(p, r, set1(5.550733581185341e-2f));
  p = fma(p, r, set1(2.4022242426872253e-1f));
  p = fma(p, r, set1(6.931470036506653e-1f));
  p = fma(p, r, set1(1.f));
  return zero_below(scale_by_power_of_two(p, n), x, -125.f);
}

static inline uint16_t to_bf16(float f) {  // round to nearest even
  uint32_t u;
  std::memcpy(&u, &f, 4);
  return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

// Products with pairs: thirty-two bf16, of which lane i holds the numbers 2i and 2i + 1. A pair's
// two products are added to a lane's sum in kSteps multiply-adds, the even number's first (of the
// bf16 instruction, in the order that it has).
#if defined(__AVX512BF16__)

constexpr int kSteps = 1;
using Weight = uint16_t;  // what pairs are multiplied with: bf16
struct Operand {
  __m512i v;
};
static inline Operand operand(const uint16_t* p, int) { return {_mm512_loadu_si512(p)}; }
static inline Operand even_only(const uint16_t* p, int) {
  return {_mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32(0xffff))};
}
static inline Operand factor(const Weight* w, int) {
  int32_t two;
  std::memcpy(&two, w, 4);
  return {_mm512_set1_epi32(two)};
}
static inline Vec multiply_add(Operand x, Operand w, Vec sum) {
  return {_mm512_dpbf16_ps(sum.v, (__m512bh)x.v, (__m512bh)w.v)};
}
static inline void store_weights(Weight* p, Vec a) {
  _mm256_storeu_si256((__m256i*)p, (__m256i)_mm512_cvtneps_pbh(a.v));
}

#else

constexpr int kSteps = 2;
using Weight = float;
using Operand = Vec;
#if defined(__AVX512F__)
static inline Operand operand(const uint16_t* p, int step) {
  __m512i w = _mm512_loadu_si512(p);
  return {_mm512_castsi512_ps(step ? _mm512_and_si512(w, _mm512_set1_epi32(0xffff0000))
                                   : _mm512_slli_epi32(w, 16))};
}
#elif defined(__AVX2__)
static inline __m256 half_pairs(const uint16_t* p, int step) {
  __m256i w = _mm256_loadu_si256((const __m256i*)p);
  return _mm256_castsi256_ps(step ? _mm256_and_si256(w, _mm256_set1_epi32(0xffff0000))
                                  : _mm256_slli_epi32(w, 16));
}
static inline Operand operand(const uint16_t* p, int step) {
  return {half_pairs(p, step), half_pairs(p + kLanes, step)};
}
#else
static inline Operand operand(const uint16_t* p, int step) {
  Vec r;
  for (int i = 0; i < kLanes; i++) r.v[i] = from_bits((uint32_t)p[2 * i + step] << 16);
  return r;
}
#endif
static inline Operand even_only(const uint16_t* p, int step) {
  return step ? zero() : operand(p, 0);
}
static inline Operand factor(const Weight* w, int step) { return set1(w[step]); }
static inline Vec multiply_add(Operand x, Operand w, Vec sum) { return fma(x, w, sum); }
static inline void store_weights(Weight* p, Vec a) { store(p, a); }

#endif

}  // namespace agentspec
