// The exact sum of products of carrier numbers (Kulisch): a fixed-point number in two's complement, rounded once.
#pragma once
#include "gemmsim/device/carrier.h"
#include "gemmsim/exact.h"

namespace gemmsim {

// The sum's unit lies below the last bit of the smallest product. Over 60 bits of headroom remain at the top.
template <class T> struct LongSum {
    static constexpr int UNIT = sizeof(T) == 8 ? -2276 : -512, LIMBS = sizeof(T) == 8 ? 72 : 14;
    uint64_t limb[LIMBS];
    bool nan, plus, minus;

    GEMMSIM_HD void clear() {
        GEMMSIM_NO_UNROLL for (int i = 0; i < LIMBS; ++i) limb[i] = 0;
        nan = plus = minus = false;
    }

    GEMMSIM_HD void add(double a, double b) {
        const double p = a * b;
        if (is_nan(p) || is_inf(a) || is_inf(b)) {
            if (is_nan(p)) nan = true;
            else if (p > 0) plus = true;
            else minus = true;
            return;
        }
        add(exact_product(a, b));
    }

    GEMMSIM_HD void add(const Exact& x) {
        if (x.mag == 0) return;
        const int at = x.exp - UNIT, word = at >> 6, shift = at & 63;
        const u128 low = x.mag << shift;
        const uint64_t part[3] = {(uint64_t)low, (uint64_t)(low >> 64), shift ? (uint64_t)(x.mag >> (128 - shift)) : 0};
        unsigned carry = 0;
        GEMMSIM_NO_UNROLL for (int i = 0; i < LIMBS - word; ++i) {
            if (i >= 3 && !carry) break;
            const u128 y = i == 0 ? part[0] : i == 1 ? part[1] : i == 2 ? part[2] : 0;
            const u128 sum = x.neg ? (u128)limb[word + i] - y - carry : (u128)limb[word + i] + y + carry;
            limb[word + i] = (uint64_t)sum;
            carry = (unsigned)(sum >> 64) & 1;
        }
    }

    GEMMSIM_HD void add(const LongSum& x) {
        unsigned carry = 0;
        GEMMSIM_NO_UNROLL for (int i = 0; i < LIMBS; ++i) {
            const u128 sum = (u128)limb[i] + x.limb[i] + carry;
            limb[i] = (uint64_t)sum;
            carry = (unsigned)(sum >> 64);
        }
        nan = nan || x.nan, plus = plus || x.plus, minus = minus || x.minus;
    }

    GEMMSIM_HD void negate() {
        uint64_t carry = 1;
        GEMMSIM_NO_UNROLL for (int i = 0; i < LIMBS; ++i) {
            limb[i] = ~limb[i] + carry;
            carry = carry && limb[i] == 0;
        }
    }
    GEMMSIM_HD bool any_below(int end) const {
        bool any = false;
        GEMMSIM_NO_UNROLL for (int i = 0; i < end; ++i) any = any || limb[i] != 0;
        return any;
    }

    // Rounds the sum. The 126 leading bits of the magnitude count, and the others give a sticky bit. The magnitude replaces the
    // sum.
    GEMMSIM_HD double round(const Cast& c, uint32_t R) {
        if (nan || (plus && minus)) return canonical_nan();
        if (plus || minus) return plus ? c.inf_pos : c.inf_neg;
        const bool neg = limb[LIMBS - 1] >> 63;
        if (neg) negate();
        int top = LIMBS - 1;
        while (top >= 0 && !limb[top]) --top;
        if (top < 0) return round_exact(Exact{0, 0, false, false}, c, R);
        Exact x = {((u128)limb[top] << 64) | (top > 0 ? limb[top - 1] : 0), UNIT + 64 * (top - 1), neg, top > 1 && any_below(top - 1)};
        if (bit_length(x.mag) > 126) {  // headroom that round_exact expects
            x.sticky = x.sticky || (x.mag & 3) != 0;
            x.mag >>= 2;
            x.exp += 2;
        } else if (x.sticky && bit_length(x.mag) < 100) {  // take in more bits from below
            const int up = 126 - bit_length(x.mag);
            x.mag = (x.mag << up) | (limb[top - 2] >> (64 - up));
            x.exp -= up;
            x.sticky = (limb[top - 2] << up) != 0 || any_below(top - 2);
        }
        return round_exact(x, c, R);
    }
};

}  // namespace gemmsim
