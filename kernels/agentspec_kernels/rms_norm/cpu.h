// RMS norm of one row: y = x / sqrt(mean(x^2) + eps) * w. The mean is summed in lane order.
#pragma once
#include "../_cpu/simd.h"

namespace agentspec {

static inline void rms_norm_row(const float* x, const float* w, int dim, float eps, float* y) {
  Vec squares = zero();
  for (int i = 0; i < dim; i += kLanes) {
    Vec v = load(x + i);
    squares = fma(v, v, squares);
  }
  Vec r = set1(1.f / std::sqrt(sum(squares) / (float)dim + eps));
  for (int i = 0; i < dim; i += kLanes) store(y + i, mul(mul(load(x + i), r), load(w + i)));
}

}  // namespace agentspec
