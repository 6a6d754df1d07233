// This file stores exponent fields behind packed panels. They decide where steps of matrix instructions truncate
// (Isa::fields_a, fields_b). For instructions with groups it stores which elements are not zero. Each tile needs those
// of its panels of A and B, and many tiles share these panels.
#pragma once
#include "product/kernel_choice.h"

namespace gemmsim {

struct ExponentFields {
    const Isa& isa;
    const Request& r;
    const bool kept;  // panels are floats, and steps need the fields

    ExponentFields(const Isa& i, const Request& request, int64_t rows, bool floats)
        : isa(i), r(request),
          kept(floats && rows > MOST_ROWS_WITHOUT_FIELDS && request.method == HARDWARE &&
               (request.hardware.kind == HW_FUSED || request.hardware.kind == HW_FLOORED || request.hardware.kind == HW_GROUPS)) {}

    // Kernels write whole vectors of fields, so there is room for one more vector.
    size_t bytes_a(int64_t panels) const { return kept ? (size_t)(panels * r.k * MR) * sizeof(int32_t) + 64 : 0; }
    size_t bytes_b(int64_t panels, int nr) const { return kept ? (size_t)(panels * r.k * nr) * sizeof(int16_t) + 64 : 0; }
    // The fields begin behind the panels, whose number is given.
    template <class T> int32_t* behind_a(const T* packed, int64_t panels) const { return (int32_t*)(packed + panels * r.k * MR); }
    template <class T> int16_t* behind_b(const T* packed, int64_t panels, int nr) const { return (int16_t*)(packed + panels * r.k * nr); }

    void of_panel_a(const void* panel, int32_t* out) const { isa.fields_a((const float*)panel, r.k, r.hardware, out); }
    void of_panels_b(const void* panels, int64_t count, int nr, int16_t* out) const {
        for (int64_t p = 0; p < count; ++p) isa.fields_b((const float*)panels + p * r.k * nr, r.k, r.hardware, out + p * r.k * nr);
    }

    // Moves a tile's fields to its terms from `begin` on. Groups begin at multiples of their size; elsewhere kernels
    // compute the fields again.
    static void begin_at(Tile* t, const HardwareModel& m, int64_t begin, int nr) {
        const int64_t size = m.kind == HW_GROUPS ? m.group : 1;
        const bool known = t->field_a && begin % size == 0;
        t->field_a = known ? t->field_a + begin / size * MR : nullptr;
        t->field_b = known ? t->field_b + begin / size * nr : nullptr;
    }
};

}  // namespace gemmsim
