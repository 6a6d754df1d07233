// Steps without range checks, for terms and sums that are known to stay inside the register's range. They give the same bits in
// fewer instructions.
#pragma once
#include "gemmsim/device/step.h"

namespace gemmsim {

// Rounds sums that cannot overflow. GRID: they do not lie between zero and the smallest quantum either; then zeros are all +0.
template <class T, Cast C, bool GRID> struct InRange {
    static constexpr int F = Carrier<T>::FRACTION, DROP = F + 1 - C.p;
    static constexpr bool SUBNORMALS = !(C.flags & NO_SUBNORMALS), NEAREST = C.mode == RNE && C.p <= F - 1 && C.p >= 2;
    // Integer arithmetic on the pattern needs a sum with bits to drop. The result must not depend on bits that the carrier
    // truncated, so SR must not have more random bits than are dropped.
    static constexpr bool BITS = GRID && DROP >= 1 && RNE < C.mode && C.mode <= SR && (C.mode != SR || C.rbits <= DROP);
    static constexpr bool POSSIBLE = carrier_rounds<T>(C) && !(C.flags & CODE_PARITY) && ((NEAREST && (GRID || SUBNORMALS)) || BITS);
    static constexpr bool SPLITS = GRID && DROP > C.p + 1;
    // Beyond this the functor's own intermediate numbers overflow.
    static constexpr int TOP = NEAREST ? Carrier<T>::BIAS - DROP : Carrier<T>::EMAX;

    static GEMMSIM_HD T apply(T x, uint32_t R) {
        if constexpr (NEAREST && SPLITS) return Split<T, C.p>::apply(x);
        else if constexpr (NEAREST && GRID) return Magic<T, C.p>::apply(x);
        else if constexpr (NEAREST) {
            const T r = MagicSubnormal<T, C.p, C.emin>::apply(x);
            return C.flags & NEG_ZERO ? from_bits<T>(to_bits(r) | (to_bits(x) & Carrier<T>::SIGN)) : r;
        } else {
            typedef Bits<T> U;
            constexpr U mask = ((U)1 << DROP) - 1;
            const U u = to_bits(x);
            return from_bits<T>((u + increment<T, C>(u & ~Carrier<T>::SIGN, u, DROP, (u & Carrier<T>::SIGN) != 0, R)) & ~mask);
        }
    }
};

// DATA: the numbers themselves have shown more than the formats prove. Products are multiples of 2^QUANTUM and have at most WIDTH
// significant bits, few enough for the carrier's nearest operations where a lemma requires that.
template <StepConfig K, bool DATA> struct StepInRange {
    typedef Step<K> S;
    typedef typename S::T T;
    static constexpr bool EXACT = !K.fp32, FROM_FORMATS = S::FROM_FORMATS;
    // No sum of multiples of this lies between zero and the smallest number. (Numbers of a format without subnormals are multiples
    // of 2^(emin - p + 1) all the same.)
    static constexpr int quantum_of(const Cast& c) { return c.flags & NO_SUBNORMALS ? c.emin : c.emin - c.p + 1; }
    // With a product rounding of its own, the terms of the sum are numbers of that format.
    static constexpr bool PRODUCT_GRID = S::FACTS.on_grid(K.fused ? K.add : K.mul) && (EXACT || S::FACTS.in_range());
    static constexpr bool GRID_MUL = DATA || PRODUCT_GRID;
    static constexpr bool GRID_ADD = FROM_FORMATS && (K.fused ? DATA || PRODUCT_GRID : K.mul.emin - K.mul.p + 1 >= quantum_of(K.add));
    static constexpr bool NEAR_FUSED = S::NEAR_FUSED || (DATA && EXACT && lemma_a<T>(K.add, K.add.p));
    static constexpr bool NEAR_PRODUCT = S::NEAR_PRODUCT || DATA;

    // The properties that DATA asserts.
    static constexpr int WIDTH = !EXACT ? 48 : !K.fused ? CarrierFacts<T>::BITS : NEAR_FUSED ? K.add.p : 48;
    static constexpr int QUANTUM =
        quantum_of(K.fused ? K.add : K.mul) > CarrierFacts<T>::LEAST ? quantum_of(K.fused ? K.add : K.mul) : CarrierFacts<T>::LEAST;
    static constexpr bool SHOWS_MORE = !PRODUCT_GRID || (EXACT && (K.fused ? NEAR_FUSED && !S::NEAR_FUSED : !S::NEAR_PRODUCT));
    typedef InRange<T, K.add, GRID_ADD> Add;
    typedef InRange<T, K.mul, GRID_MUL> Mul;
    // Where the carrier is the format there is nothing to omit.
    static constexpr bool POSSIBLE = K.carrier != 2 && !S::Add::NATIVE && S::Add::FITS && Add::POSSIBLE &&
                                     (K.fused || (Mul::POSSIBLE && S::Mul::FITS && !S::Mul::NATIVE)) &&
                                     (!DATA || (K.carrier == 0 && FROM_FORMATS && SHOWS_MORE));

    // Magnitudes of sums, before and after they are rounded, stay below LIMIT, and those of products before their own rounding
    // below LIMIT_MUL.
    static constexpr double limit_of(const Cast& c, int top) { return smaller(smaller(c.hi, -c.lo), power<double>(top - 2)); }
    static constexpr float LIMIT = (float)(smaller(limit_of(K.add, Add::TOP), 0x1p126) * (1 - 0x1p-20));
    static constexpr float LIMIT_MUL = (float)(smaller(limit_of(K.mul, Mul::TOP), 0x1p126) * (1 - 0x1p-20));

    static GEMMSIM_HD T step(T s, T a, T b, uint32_t rm, uint32_t ra) {
        if constexpr (K.fused) return Add::apply(fused<K.add>(a, b, s), ra);
        else {
            T q = Mul::apply(product<K.mul>(a, b), rm);
            return Add::apply(sum<K.add>(q, s), ra);
        }
    }

private:
    template <Cast C> static GEMMSIM_HD T fused(T a, T b, T s) {
        if constexpr (K.fp32 || NEAR_FUSED) return fma_rn(a, b, s);
        else if constexpr (cut_suffices(C)) return fma_rz(a, b, s);
        else return fma_odd(a, b, s);
    }
    template <Cast C> static GEMMSIM_HD T product(T a, T b) {
        if constexpr (K.fp32 || NEAR_PRODUCT) return mul_rn(a, b);
        else if constexpr (cut_suffices(C)) return mul_rz(a, b);
        else return mul_odd(a, b);
    }
    template <Cast C> static GEMMSIM_HD T sum(T q, T s) {
        if constexpr (K.fp32 || S::NEAR_SUM) return add_rn(q, s);
        else if constexpr (cut_suffices(C)) return add_rz(q, s);
        else return add_odd(q, s);
    }
};

}  // namespace gemmsim
