// Runs of exact sums by exponent (BINNED). Each exponent of a product has a small register. A register is added to a rounded sum
// ("spilled") before it would overflow. At the end all registers are spilled, from the smallest exponent up. The registers of an output
// lie in local memory. There is one for each exponent that a product can have by the operands' formats. Those between the smallest and
// the largest exponent so far are in use.
#pragma once
#include "gemm/simt/binned_sum.h"
#include "gemm/simt/kulisch_run.h"

namespace gemmsim {

template <GemmConfig K> struct BinnedRun {
    typedef typename Steps<K>::T T;
    static constexpr int MEASURES = NOTHING;
    static_assert(K.rows == 1 && K.cols == 1, "the registers of more outputs do not fit a thread");
    static constexpr OperandFacts A = operand_facts(K.cast_a, K.a), B = operand_facts(K.cast_b, K.b);
    static constexpr int CARRY = K.reg.bits, PRODUCT = A.bits + B.bits, LOWEST = A.quantum + B.quantum, COUNT = A.top + B.top - LOWEST;
    static constexpr int WIDTH = PRODUCT + CARRY + 1;  // bits of a sum that has just left its range, with its sign
    typedef typename Steps<K>::template Pick<NarrowBin<i128>, NarrowBin<int64_t>, WIDTH <= 64>::type Narrow;
    typedef typename Steps<K>::template Pick<Narrow, WideBin, (WIDTH > 125)>::type Bin;

    Bin at[COUNT];
    int first, last;  // indices of the registers in use; last < 0: none
    double s;
    int64_t spills = 0;  // additions to an output's sum in all runs, which index their draws

    GEMMSIM_HD void start() {
        first = COUNT;
        last = -1;
        s = 0;
    }

    GEMMSIM_HD uint32_t draw(const Place<K>& place) {
        const int64_t index = spills++;
        if constexpr (K.add.mode >= SR) return place.draw(0, 0, index, LongRun<K>::SITE, K.add.rbits);
        else return 0;
    }
    GEMMSIM_HD void spill(const Bin& bin, int index, const Place<K>& place) {
        const uint32_t R = draw(place);
        s = is_nan(s) || is_inf(s) ? round_value(s, K.add, R) : bin.spilled(s, index + LOWEST - (PRODUCT - 1), K.add, R);
    }

    // Returns the register `index`. Clears it, and all between it and those in use, if it was not in use.
    GEMMSIM_HD Bin& of(int index) {
        if (last < 0) {
            first = index;
            last = index - 1;
        }
        GEMMSIM_NO_UNROLL while (first > index) at[--first] = Bin::zero();
        GEMMSIM_NO_UNROLL while (last < index) at[++last] = Bin::zero();
        return at[index];
    }

    GEMMSIM_HD void term(double a, double b, const Place<K>& place) {
        const double p = a * b;
        if (is_nan(p) || is_inf(a) || is_inf(b)) {
            s = sum_step(p, s, K.add, draw(place));
            return;
        }
        const Exact x = exact_product(a, b);
        if (x.mag == 0) return;
        const int length = bit_length(x.mag), up = PRODUCT - length, index = x.exp + length - 1 - LOWEST;
        const u128 mag = up >= 0 ? x.mag << up : x.mag >> -up;  // a right shift loses only zeros
        Bin& held = of(index);
        const Bin next = held.plus(mag, x.neg);
        if (next.within(PRODUCT, CARRY)) held = next;
        else {
            spill(held, index, place);
            held = Bin::zero().plus(mag, x.neg);
        }
    }

    GEMMSIM_HD void chunk(const Stream<K>& stream, const Place<K>& place, int first_term, int count) {
        GEMMSIM_NO_UNROLL for (int k = first_term; k < first_term + count; ++k) {
            const auto a = stream.buffer()->a[k * Stream<K>::PanelA::PITCH + place.ty];
            const auto b = stream.buffer()->b[k * Stream<K>::PanelB::PITCH + place.tx];
            term((double)stream.left(a), (double)stream.right(a, b), place);
        }
    }

    GEMMSIM_HD void finish(const Place<K>& place, Totals<K>& out, int64_t, int64_t) {
        GEMMSIM_NO_UNROLL for (int i = first; i <= last; ++i) if (!at[i].empty()) spill(at[i], i, place);
        out.v[0][0] = (T)s;
    }
};

}  // namespace gemmsim
