// y = gate / (1 + e^-gate) * up of one row or a part of it.
#pragma once
#include "../_cpu/simd.h"

namespace agentspec {

static inline void silu_mul_row(const float* gate, const float* up, int dim, float* y) {
  for (int i = 0; i < dim; i += kLanes) {
    Vec g = load(gate + i), u = load(up + i);
    Vec e = exp(sub(zero(), g));
    store(y + i, mul(div(g, add(set1(1.f), e)), u));
  }
}

}  // namespace agentspec
