// This file maps a way of issue, the operand formats and the register's format (HALF: binary16) to CuTe's atom of the instruction.
#pragma once
#include <cute/tensor.hpp>
#include <cute/atom/copy_atom.hpp>
#include <cute/atom/mma_atom.hpp>
#include "gemm/tensor_cores/element_types.h"

namespace gemmsim {

template <Issue I, Element A, Element B, bool HALF> struct InstructionAtom;
#define GEMMSIM_ATOM(I, A, B, HALF, ...)                                         \
    template <> struct InstructionAtom<Issue::I, Element::A, Element::B, HALF> { \
        typedef __VA_ARGS__ type;                                                \
    };

GEMMSIM_ATOM(WARP, F16, F16, false, cute::SM80_16x8x16_F32F16F16F32_TN)
GEMMSIM_ATOM(WARP, F16, F16, true, cute::SM80_16x8x16_F16F16F16F16_TN)
GEMMSIM_ATOM(WARP, BF16, BF16, false, cute::SM80_16x8x16_F32BF16BF16F32_TN)
GEMMSIM_ATOM(WARP, TF32, TF32, false, cute::SM80_16x8x8_F32TF32TF32F32_TN)
GEMMSIM_ATOM(WARP, E4M3, E4M3, false, cute::SM89_16x8x32_F32E4M3E4M3F32_TN)
GEMMSIM_ATOM(WARP, E4M3, E5M2, false, cute::SM89_16x8x32_F32E4M3E5M2F32_TN)
GEMMSIM_ATOM(WARP, E5M2, E4M3, false, cute::SM89_16x8x32_F32E5M2E4M3F32_TN)
GEMMSIM_ATOM(WARP, E5M2, E5M2, false, cute::SM89_16x8x32_F32E5M2E5M2F32_TN)
GEMMSIM_ATOM(WARP, E4M3, E4M3, true, cute::SM89_16x8x32_F16E4M3E4M3F16_TN)
GEMMSIM_ATOM(WARP, E4M3, E5M2, true, cute::SM89_16x8x32_F16E4M3E5M2F16_TN)
GEMMSIM_ATOM(WARP, E5M2, E4M3, true, cute::SM89_16x8x32_F16E5M2E4M3F16_TN)
GEMMSIM_ATOM(WARP, E5M2, E5M2, true, cute::SM89_16x8x32_F16E5M2E5M2F16_TN)
GEMMSIM_ATOM(WARP_GROUP, F16, F16, false, cute::SM90_64x128x16_F32F16F16_SS<cute::GMMA::Major::K, cute::GMMA::Major::K>)
GEMMSIM_ATOM(WARP_GROUP, F16, F16, true, cute::SM90_64x128x16_F16F16F16_SS<cute::GMMA::Major::K, cute::GMMA::Major::K>)
GEMMSIM_ATOM(WARP_GROUP, BF16, BF16, false, cute::SM90_64x128x16_F32BF16BF16_SS<cute::GMMA::Major::K, cute::GMMA::Major::K>)
GEMMSIM_ATOM(WARP_GROUP, TF32, TF32, false, cute::SM90_64x128x8_F32TF32TF32_SS_TN<>)
GEMMSIM_ATOM(WARP_GROUP, E4M3, E4M3, false, cute::SM90_64x128x32_F32E4M3E4M3_SS_TN<>)
GEMMSIM_ATOM(WARP_GROUP, E4M3, E5M2, false, cute::SM90_64x128x32_F32E4M3E5M2_SS_TN<>)
GEMMSIM_ATOM(WARP_GROUP, E5M2, E4M3, false, cute::SM90_64x128x32_F32E5M2E4M3_SS_TN<>)
GEMMSIM_ATOM(WARP_GROUP, E5M2, E5M2, false, cute::SM90_64x128x32_F32E5M2E5M2_SS_TN<>)
GEMMSIM_ATOM(WARP_GROUP, E4M3, E4M3, true, cute::SM90_64x128x32_F16E4M3E4M3_SS_TN<>)
GEMMSIM_ATOM(WARP_GROUP, E4M3, E5M2, true, cute::SM90_64x128x32_F16E4M3E5M2_SS_TN<>)
GEMMSIM_ATOM(WARP_GROUP, E5M2, E4M3, true, cute::SM90_64x128x32_F16E5M2E4M3_SS_TN<>)
GEMMSIM_ATOM(WARP_GROUP, E5M2, E5M2, true, cute::SM90_64x128x32_F16E5M2E5M2_SS_TN<>)
#undef GEMMSIM_ATOM

}  // namespace gemmsim
