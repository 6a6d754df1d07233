// Addresses of a product's operands, addend, scales, palette indices and result, for each batch.
#pragma once
#include "product/addend.h"
#include "product/implicit_im2col.h"
#include "product/lookup.h"
#include "product/palette_runner.h"

namespace gemmsim {

struct Operands {
    const GemmArgs& g;
    const Request& r;
    const Gather* const gather;  // index tables of A (implicit im2col); null: A is a matrix
    const bool coded;            // operands are codes of a table

    // Offset of a batch, in elements, by its strides in each batch dimension.
    static int64_t offset(const int64_t* strides, const int64_t* sizes, int dims, int64_t batch) {
        int64_t at = 0;
        for (int d = dims - 1; d >= 0; --d) {
            at += strides[d] * (batch % sizes[d]);
            batch /= sizes[d];
        }
        return at;
    }
    Matrix operand_a(int64_t batch) const {
        return Matrix{(const char*)g.a + offset(g.batch + g.batch_dims, g.batch, g.batch_dims, batch) * dtype_size(g.a_dtype),
                      g.a_dtype,
                      g.m,
                      g.k,
                      g.a_row,
                      g.a_col};
    }
    Matrix operand_b(int64_t batch) const {
        if (coded)
            return Matrix{(const char*)((const Code*)g.b + offset(g.batch + 2 * g.batch_dims, g.batch, g.batch_dims, batch)),
                          g.b_dtype,
                          g.k,
                          g.n,
                          g.b_row,
                          g.b_col};
        return Matrix{(const char*)g.b + offset(g.batch + 2 * g.batch_dims, g.batch, g.batch_dims, batch) * dtype_size(g.b_dtype),
                      g.b_dtype,
                      g.k,
                      g.n,
                      g.b_row,
                      g.b_col};
    }

    Addend addend_of(int64_t batch) const {
        if (!r.init) return Addend{};
        const Extras& x = *g.extras;
        return Addend{(const char*)x.addend + offset(x.batch, g.batch, g.batch_dims, batch) * dtype_size(x.addend_dtype), x.addend_dtype,
                      x.addend_row, x.addend_col};
    }

    TileScales scales_of(int64_t batch, int64_t row, int64_t col) const {
        const Scales* const x = g.extras ? g.extras->scales : nullptr;
        if (!x) return TileScales();
        const double* const a = x->a + offset(x->batch, g.batch, g.batch_dims, batch) + row * x->a_row;
        return TileScales{x, a, x->b + offset(x->batch + g.batch_dims, g.batch, g.batch_dims, batch) + col * x->b_col};
    }
    Select select_of(int64_t batch) const {
        const Extras& x = *g.extras;
        return Select{x.select + offset(x.batch + g.batch_dims, g.batch, g.batch_dims, batch), x.select_row, x.select_col};
    }
    int64_t result_row(int64_t m) const { return gather ? m / gather->inner * gather->c_outer + m % gather->inner * g.c_row : m * g.c_row; }

    char* result_of(int64_t batch) const {  // null: the caller wants counts only
        return !g.c ? nullptr : (char*)g.c + offset(g.batch + 3 * g.batch_dims, g.batch, g.batch_dims, batch) * dtype_size(g.c_dtype);
    }
};

}  // namespace gemmsim
