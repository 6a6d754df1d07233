// Comparisons of float lanes and operations on their results, which are masks: mask registers on AVX-512, else vectors of -1 and 0.
// The kernels that count events use them.
#pragma once
#include "vec.h"

namespace gemmsim::NS {

#if ISA_AVX512
typedef __mmask16 Mask;
INL Mask equals(C32::V a, C32::V b) { return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_EQ_OQ); }
INL Mask equals_where(Mask m, C32::V a, C32::V b) { return _mm512_mask_cmp_ps_mask(m, (__m512)a, (__m512)b, _CMP_EQ_OQ); }
INL Mask differs(C32::V a, C32::V b) { return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_NEQ_OQ); }
INL Mask unordered(C32::V a) { return _mm512_cmp_ps_mask((__m512)a, (__m512)a, _CMP_UNORD_Q); }
INL Mask not_at_least(C32::V a, C32::V b) { return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_NGE_UQ); }
INL Mask same_bits(C32::V a, C32::V b) { return _mm512_cmpeq_epi32_mask((__m512i)a, (__m512i)b); }
INL Mask exceeds(C32::VI a, C32::VI b) { return _mm512_cmpgt_epi32_mask((__m512i)a, (__m512i)b); }
// a and not b
INL Mask but(Mask a, Mask b) { return _kandn_mask16(b, a); }
INL Mask both(Mask a, Mask b) { return _kand_mask16(a, b); }
INL Mask either(Mask a, Mask b) { return _kor_mask16(a, b); }
INL bool any(Mask a) { return a != 0; }
INL Mask some_bit(C32::V a) { return _mm512_test_epi32_mask((__m512i)a, (__m512i)a); }
INL C32::VU umin(C32::VU a, C32::VU b) { return (C32::VU)_mm512_min_epu32((__m512i)a, (__m512i)b); }
// n, plus 1 in the lanes of the mask
INL C32::VI counted(C32::VI n, Mask a) { return (C32::VI)_mm512_mask_add_epi32((__m512i)n, a, (__m512i)n, _mm512_set1_epi32(1)); }
INL C32::VI more(C32::VI n, Mask a, C32::VI by) { return (C32::VI)_mm512_mask_add_epi32((__m512i)n, a, (__m512i)n, (__m512i)by); }
#elif ISA_MODES
typedef C32::VI Mask;
INL Mask equals(C32::V a, C32::V b) { return (Mask)(a == b); }
INL Mask not_at_least(C32::V a, C32::V b) { return ~(Mask)(a >= b); }
INL Mask same_bits(C32::V a, C32::V b) { return (Mask)((C32::VI)a == (C32::VI)b); }
INL Mask exceeds(C32::VI a, C32::VI b) { return (Mask)(a > b); }
INL Mask but(Mask a, Mask b) { return a & ~b; }
INL Mask both(Mask a, Mask b) { return a & b; }
INL Mask either(Mask a, Mask b) { return a | b; }
INL bool any(Mask a) { return !none_set(a); }
INL Mask equals_where(Mask m, C32::V a, C32::V b) { return m & (Mask)(a == b); }
INL Mask differs(C32::V a, C32::V b) { return (Mask)(a != b); }
INL Mask some_bit(C32::V a) { return (Mask)((C32::VI)a != (C32::VI){}); }
INL C32::VI counted(C32::VI n, Mask a) { return n - a; }
INL C32::VI more(C32::VI n, Mask a, C32::VI by) { return n + (a & by); }
#endif

}  // namespace gemmsim::NS
