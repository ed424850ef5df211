// The sequential part of a block draft: from the logits of its rows to tokens, one after the other.
//
// Row k's logits U_k are corrected by a Markov head that knows the token before (DSpark paper, eq. 5
// and 6): U_k + W2 f(W1[x_{k-1}], h_k). Only the K best of the allowed tokens are looked at: the
// draft's distribution is the truncated one, so nothing is lost but a little acceptance. The
// confidence is a function of h_k and x_{k-1} (eq. 7), never of x_k.
#pragma once
#include <algorithm>
#include <cmath>
#include <functional>

#include "../_cpu/simd.h"

namespace agentspec {

constexpr int kMostCandidates = 512;
constexpr int kMostRank = 1024;

enum MarkovKind : int32_t { kNoMarkov = 0, kVanilla = 1, kGated = 2, kRnn = 3 };
enum ChainMode : int32_t { kGreedy = 0, kNoise = 1, kDense = 2 };

// Sizes are padded to 16 with zeros: rank r, hidden size d. Tables of one int8 row a token.
struct DraftHead {
  int32_t rows, hidden, rank, markov, candidates, confidence, reserved, vocab;
  const int8_t *w1, *w2;                 // [V][r] by target id, [rows][r] by draft row
  const float *w1_scale, *w2_scale;      // [V], [rows]
  const float *gate, *gate_bias;         // gated [r][d + r]; rnn [3r][2r + d]; and biases
  const float* confidence_weight;        // [d + r] (behind d: zeros where it takes no token), bias
  const int32_t* target_id;              // [rows], null: a row's number is its token
};

struct DraftChain {
  int32_t rows, previous, mode, top_k;
  float temperature, top_p, min_p, reserved;
  const float* logits;     // [rows][head.rows]
  const float* hidden;     // [rows][d]
  const uint32_t* mask;    // [ceil(V / 32)] for all rows, null: everything is allowed
  float* state;            // [r], rnn: from the rows before to those behind
  const double* uniform;   // [rows], dense
  uint64_t seed;           // noise: key, and the position of the first row's token
  int64_t position;
  int32_t* tokens;         // [rows] out
  float* confidence;       // [rows] out, logits
  int32_t* ids;            // [rows][K] out, dense: the candidates and
  float* probs;            // [rows][K] their probabilities
};

struct Candidate {
  float value;
  int32_t row, token;
};

static inline bool better(const Candidate& a, const Candidate& b) {
  return a.value > b.value || (a.value == b.value && a.token < b.token);
}

// sum of a[i] * b[i] in sixteen lanes, n % 16 == 0.
template <class T>
static inline float dot(const T* a, const float* b, int n) {
  float lane[16] = {};
  for (int i = 0; i < n; i += 16)
    for (int l = 0; l < 16; l++) lane[l] += (float)a[i + l] * b[i + l];
  for (int width = 8; width; width /= 2)
    for (int l = 0; l < width; l++) lane[l] += lane[l + width];
  return lane[0];
}

static inline float sigmoid(float x) { return 1.f / (1.f + std::exp(-x)); }

constexpr int kStride = 64;
constexpr int kMostStrides = 4096;

static inline float largest_of_stride(const float* x) {
  Vec top = load(x);
  for (int i = kLanes; i < kStride; i += kLanes) top = max(top, load(x + i));
  return largest(top);
}

// A number that at least K of the logits reach: the K-th largest of the strides' maxima, which are
// left in `tops`; -inf where there are too few strides to tell.
static float lower_bound(const DraftHead& head, const float* logits, float* tops) {
  float sorted[kMostStrides];
  int strides = head.rows / kStride;
  if (strides < 2 * head.candidates || strides > kMostStrides) return -INFINITY;
  for (int i = 0; i < strides; i++) sorted[i] = tops[i] = largest_of_stride(logits + i * kStride);
  std::nth_element(sorted, sorted + head.candidates - 1, sorted + strides, std::greater<float>());
  return sorted[head.candidates - 1];
}

// The best allowed rows of `logits`, in any order; of equals the smaller token. Returns how many.
static int best_rows(const DraftHead& head, const float* logits, const uint32_t* mask,
                     Candidate* out) {
  Candidate buffer[4 * kMostCandidates];
  float tops[kMostStrides];
  int count = 0, room = 4 * head.candidates;
  auto keep_best = [&] {
    std::nth_element(buffer, buffer + head.candidates - 1, buffer + count, better);
    count = head.candidates;
    // A row that is as good as the last one may still be of a smaller token.
    return std::nextafterf(buffer[count - 1].value, -INFINITY);
  };
  float known = mask ? -INFINITY : lower_bound(head, logits, tops);
  float least = known == -INFINITY ? known : std::nextafterf(known, -INFINITY);
  for (int begin = 0; begin < head.rows; begin += kStride) {
    int end = begin + kStride < head.rows ? begin + kStride : head.rows;
    if (end - begin == kStride) {
      float top = known == -INFINITY ? largest_of_stride(logits + begin) : tops[begin / kStride];
      if (!(top > least)) continue;
    }
    for (int i = begin; i < end; i++) {
      if (!(logits[i] > least)) continue;
      int token = head.target_id ? head.target_id[i] : i;
      if (mask && !(mask[token / 32] >> (token % 32) & 1)) continue;
      buffer[count++] = {logits[i], i, token};
      if (count == room) least = keep_best();
    }
  }
  if (count > head.candidates) keep_best();
  std::copy(buffer, buffer + count, out);
  return count;
}

// embedding <- W1[previous]; vector <- what W2 is multiplied with. state: see DraftChain.
static void markov_vector(const DraftHead& head, const float* hidden, float* state,
                          const float* embedding, float* vector) {
  int r = head.rank, d = head.hidden;
  if (head.markov == kVanilla) {
    std::copy(embedding, embedding + r, vector);
  } else if (head.markov == kGated) {
    for (int i = 0; i < r; i++) {
      const float* row = head.gate + (int64_t)i * (d + r);
      vector[i] = embedding[i] * sigmoid(dot(row, hidden, d) + dot(row + d, embedding, r) +
                                         head.gate_bias[i]);
    }
  } else if (head.markov == kRnn) {
    float part[3][kMostRank];
    for (int i = 0; i < 3 * r; i++) {
      const float* row = head.gate + (int64_t)i * (2 * r + d);
      part[i / r][i % r] = dot(row, state, r) + dot(row + r, embedding, r) +
                           dot(row + 2 * r, hidden, d) + head.gate_bias[i];
    }
    for (int i = 0; i < r; i++) {
      float g = sigmoid(part[0][i]);
      state[i] = g * state[i] + (1 - g) * std::tanh(part[1][i]);
      vector[i] = std::tanh(part[2][i]);
    }
  }
}

// Standard Gumbel noise of a token: the target's own noise (gumbel/reference.py), to rounding.
static inline double token_noise(uint64_t key, int token) {
  uint64_t x = key + 0x9E3779B97F4A7C15ull * (uint64_t)(token + 1);
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  x ^= x >> 31;
  return -std::log(-std::log(((double)(x >> 12) + 0.5) * 0x1p-52));
}

static inline uint64_t mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// softmax(value / temperature), then top_k, top_p and min_p, of candidates in falling order. Returns
// how many are left; weight sums to one over them.
static int truncated(const DraftChain& chain, const Candidate* at, int count, double* weight) {
  double total = 0, before = 0;
  for (int i = 0; i < count; i++)
    total += weight[i] = std::exp(((double)at[i].value - at[0].value) / chain.temperature);
  int kept = chain.top_k > 0 && chain.top_k < count ? chain.top_k : count;
  if (chain.top_p < 1.f || kept < count) {
    total = 0;
    for (int i = 0; i < kept; i++) total += weight[i];
    int i = 0;
    for (; i < kept && (i == 0 || chain.top_p >= 1.f || before < chain.top_p * total); i++)
      before += weight[i];
    kept = i;
  }
  while (kept > 1 && weight[kept - 1] < chain.min_p * weight[0]) kept--;
  total = 0;
  for (int i = 0; i < kept; i++) total += weight[i];
  for (int i = 0; i < kept; i++) weight[i] /= total;
  return kept;
}

// One token of candidates in falling order; dense: row k's candidates are told, too.
static int choose(const DraftHead& head, const DraftChain& chain, int k, const Candidate* at,
                  int count) {
  if (chain.mode == kGreedy) return at[0].token;
  double weight[kMostCandidates];
  int kept = truncated(chain, at, count, weight), best = 0;
  if (chain.mode == kNoise) {
    uint64_t golden = 0x9E3779B97F4A7C15ull;
    uint64_t key = mix64(mix64(chain.seed + golden) + (uint64_t)(chain.position + k) * golden);
    double top = -INFINITY;
    for (int i = 0; i < kept; i++) {
      double score = std::log(weight[i]) + token_noise(key, at[i].token);
      if (score > top) top = score, best = i;
    }
    return at[best].token;
  }
  int32_t* ids = chain.ids + (int64_t)k * head.candidates;
  float* probs = chain.probs + (int64_t)k * head.candidates;
  double total = 0, below = 0;
  for (int i = 0; i < head.candidates; i++) {
    ids[i] = i < kept ? at[i].token : -1;
    total += probs[i] = i < kept ? (float)weight[i] : 0.f;
  }
  for (best = 0; best + 1 < kept; best++)
    if ((below += probs[best]) > chain.uniform[k] * total) break;
  while (best > 0 && probs[best] == 0.f) best--;
  return ids[best];
}

// Returns how many rows got a token: all, or those before one whose candidates are all forbidden.
static int draft_chain(const DraftHead& head, const DraftChain& chain) {
  alignas(64) float embedding[kMostRank] = {}, vector[kMostRank];
  int previous = chain.previous;
  for (int k = 0; k < chain.rows; k++) {
    const float* hidden = chain.hidden + (int64_t)k * head.hidden;
    if (head.markov) {
      const int8_t* row = head.w1 + (int64_t)previous * head.rank;
      for (int i = 0; i < head.rank; i++) embedding[i] = row[i] * head.w1_scale[previous];
    }
    if (head.confidence) {
      const float* w = head.confidence_weight;
      chain.confidence[k] = dot(w, hidden, head.hidden) + dot(w + head.hidden, embedding, head.rank) +
                            w[head.hidden + head.rank];
    }
    Candidate at[kMostCandidates];
    int count = best_rows(head, chain.logits + (int64_t)k * head.rows, chain.mask, at);
    if (count == 0) return k;
    if (head.markov) {
      for (int i = 0; i < count; i++) prefetch(head.w2 + (int64_t)at[i].row * head.rank);
      markov_vector(head, hidden, chain.state, embedding, vector);
      for (int i = 0; i < count; i++)
        at[i].value += head.w2_scale[at[i].row] *
                       dot(head.w2 + (int64_t)at[i].row * head.rank, vector, head.rank);
    }
    if (chain.mode == kGreedy)
      std::iter_swap(at, std::min_element(at, at + count, better));
    else
      std::sort(at, at + count, better);
    previous = chain.tokens[k] = choose(head, chain, k, at, count);
  }
  return chain.rows;
}

}  // namespace agentspec
