// Exponent fields of packed panels, behind them: what decides where steps of matrix instructions cut (Isa::fields_a, fields_b). One
// tile needs those of its panels of A and of B, both of which many other tiles have, too.
#pragma once
#include "product/plan.h"

namespace gemmsim {

struct ExponentFields {
    const Isa& isa;
    const Request& r;
    const bool kept;  // panels are of floats and steps need them

    ExponentFields(const Isa& i, const Request& request, bool floats)
        : isa(i), r(request),
          kept(floats && request.method == HARDWARE && (request.hardware.kind == HW_FUSED || request.hardware.kind == HW_FLOORED)) {}

    // Kernels write whole vectors of them.
    size_t bytes_a(int64_t panels) const { return kept ? (size_t)(panels * r.k * MR) * sizeof(int32_t) + 64 : 0; }
    size_t bytes_b(int64_t panels, int nr) const { return kept ? (size_t)(panels * r.k * nr) * sizeof(int16_t) + 64 : 0; }
    int32_t* of_a(const void* packed, int64_t panels, int64_t panel) const {
        return (int32_t*)((float*)packed + panels * r.k * MR) + panel * r.k * MR;
    }
    int16_t* of_b(const void* packed, int64_t panels, int nr, int64_t panel) const {
        return (int16_t*)((float*)packed + panels * r.k * nr) + panel * r.k * nr;
    }
};

}  // namespace gemmsim
