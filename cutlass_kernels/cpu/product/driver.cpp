// Entry point of matrix products over whole tensors: chooses the carrier and computes with Product or StreamedProduct.
// A palette splits its members by carrier. This file has no special instructions.
#include "product/streamed.h"

namespace gemmsim {

static Request request_of(const GemmArgs& g, const Member& member) {
    Request r;
    static_cast<Member&>(r) = member;
    r.a = g.cast_a;
    r.b = g.cast_b;
    r.out = g.cast_out;
    r.arithmetic = g.arithmetic;
    r.dtype_a = g.a_dtype;
    r.dtype_b = g.b_dtype;
    r.dtype_c = g.extras ? g.extras->addend_dtype : F32;
    if (!g.extras || !g.extras->addend) r.init = FROM_ZERO;
    r.k = g.k;
    return r;
}

template <class T> static void run(const Product<T>& product, Report* report) {
    if (product.streamed) StreamedProduct<T>{product}.run(report);
    else product.run(report);
}

static Report run_palette(const Isa& isa, const GemmArgs& g) {
    Request requests[MAX_MEMBERS];
    for (int m = 0; m < g.member_count; ++m) requests[m] = request_of(g, g.members[m]);
    Members narrow, wide;
    split_members(requests, g.member_count, isa.directed == Isa::DIRECTED, &narrow, &wide);
    Report report = Report::empty();
    if (g.m == 0 || g.n == 0) return report;
    if (!narrow.requests.empty()) run(Product<float>(isa, g, narrow.requests[0], 0, &narrow), &report);
    if (!wide.requests.empty()) run(Product<double>(isa, g, wide.requests[0], 1, &wide), &report);
    return report;
}

template <class T> static void run_product(const Isa& isa, const GemmArgs& g, const Request& r, int carrier, const Gather* gather,
                                           const Lookup* lookup, const EventArgs* events, Report* report) {
    if (!lookup) return run(Product<T>(isa, g, r, carrier, nullptr, gather, nullptr, events), report);
    const Table<T> table(isa, *lookup);
    run(Product<T>(isa, g, r, carrier, nullptr, nullptr, &table), report);
}

Report run_gemm(const Isa& isa, const GemmArgs& g, const Gather* gather, const Lookup* lookup, const EventArgs* events) {
    if (g.member_count) return run_palette(isa, g);
    const Request r = request_of(g, g.member);
    Report report = Report::empty();
    const bool by_modes = isa.directed == Isa::TILES && (long_runs(r) || speculative_terms(r) || single_terms(r));
    const bool directed = isa.directed == Isa::DIRECTED || by_modes;
    int carrier = choose_carrier(r, directed || events, 0, lookup != nullptr);  // kernels that count events take any products
    if (carrier == 2 && isa.directed == Isa::TILES)
        carrier = choose_carrier(r, true, 0, lookup != nullptr);  // any kernel of tiles is better than none
    if (g.m == 0 || g.n == 0) return report;
    if (carrier == 0 || (carrier == 2 && g.arithmetic == FP32)) run_product<float>(isa, g, r, carrier, gather, lookup, events, &report);
    else run_product<double>(isa, g, r, carrier, gather, lookup, events, &report);
    return report;
}

}  // namespace gemmsim
