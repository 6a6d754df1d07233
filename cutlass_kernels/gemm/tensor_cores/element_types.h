// This file maps each operand format (Element) to CuTe's type of that format.
#pragma once
#include <cute/tensor.hpp>
#include "gemm/tensor_cores/native_mma_config.h"

namespace gemmsim {

template <Element E> struct ElementType;
template <> struct ElementType<Element::F16> {
    typedef cute::half_t type;
};
template <> struct ElementType<Element::BF16> {
    typedef cute::bfloat16_t type;
};
template <> struct ElementType<Element::TF32> {
    typedef cute::tfloat32_t type;
};
template <> struct ElementType<Element::E4M3> {
    typedef cute::float_e4m3_t type;
};
template <> struct ElementType<Element::E5M2> {
    typedef cute::float_e5m2_t type;
};

}  // namespace gemmsim
