// Rotary embedding, half-rotation layout: pairs (i, i + D/2) turn by position * theta^(-2i/D).
#pragma once
#include "../_cpu/simd.h"

namespace agentspec {

// x, y: [D]; cos, sin: [D/2] of the row's position. x and y may be the same.
static inline void rope_head(const float* x, const float* cos, const float* sin, int dim, float* y) {
  int half = dim / 2;
  for (int i = 0; i < half; i += kLanes) {
    Vec a = load(x + i), b = load(x + half + i), c = load(cos + i), s = load(sin + i);
    store(y + i, sub(mul(a, c), mul(b, s)));
    store(y + half + i, fma(b, c, mul(a, s)));
  }
}

}  // namespace agentspec
