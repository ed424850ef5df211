// y = gate / (1 + e^-gate) * up for one row holding [gate | up].
#pragma once
#include "../_cpu/simd.h"

namespace agentspec {

static inline void silu_mul_row(const float* gate_up, int dim, float* y) {
  for (int i = 0; i < dim; i += kLanes) {
    Vec g = load(gate_up + i), u = load(gate_up + dim + i);
    Vec e = exp(sub(zero(), g));
    store(y + i, mul(div(g, add(set1(1.f), e)), u));
  }
}

}  // namespace agentspec
