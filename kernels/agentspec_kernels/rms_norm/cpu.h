// RMS norm of one row: y = x / sqrt(mean(x^2) + eps) * w. The mean is summed in lane order.
#pragma once
#include "../_cpu/simd.h"

namespace agentspec {

// 1 / sqrt(mean(x^2) + eps) of a row.
static inline float rms_scale(const float* x, int dim, float eps) {
  Vec squares = zero();
  for (int i = 0; i < dim; i += kLanes) {
    Vec v = load(x + i);
    squares = fma(v, v, squares);
  }
  return 1.f / std::sqrt(sum(squares) / (float)dim + eps);
}

static inline void scale_row(const float* x, const float* w, int dim, float scale, float* y) {
  Vec r = set1(scale);
  for (int i = 0; i < dim; i += kLanes) store(y + i, mul(mul(load(x + i), r), load(w + i)));
}

}  // namespace agentspec
