// The epilogue: turns a result into the tensor's element. It applies the output cast, then a bias and one more cast where the product
// has them (GemmConfig::finish).
#pragma once
#include "gemm/simt/config.h"
#include "gemmsim/device/round_cast.h"
#include "gemmsim/device/storage.h"

namespace gemmsim {

template <GemmConfig K> struct Finisher {
    typedef typename Storage<K.out>::Word Word;
    typedef typename Storage<K.finish.work>::Word Work;
    typedef typename Storage<K.finish.bias>::Word Bias;
    static constexpr bool BIASED = K.finish.present && K.finish.biased;

    // `bias` is read only if the product has one.
    template <class T> static GEMMSIM_HD Word apply(T total, const Bias* bias) {
        if constexpr (K.cast_out.flags & PRESENT) return finish(round_cast<K.cast_out>(total, 0), bias);
        else return finish(total, bias);
    }

private:
    template <class T> static GEMMSIM_HD Word finish(T x, const Bias* bias) {
        if constexpr (!K.finish.present) return store_value<K.out>(x);
        else {
            Work w = store_value<K.finish.work>(x);
            if constexpr (BIASED) w = add_rn(w, store_value<K.finish.work>(load_value<K.finish.bias, Loaded>(*bias)));
            if constexpr (K.finish.cast.flags & PRESENT) return narrow(round_cast<K.finish.cast>(w, 0));
            else return narrow(w);
        }
    }
    // Converts as PyTorch does: from float64 to 16 bits through float32.
    template <class T> static GEMMSIM_HD Word narrow(T x) {
        if constexpr ((K.out == F16 || K.out == BF16) && sizeof(T) == 8) return store_value<K.out>(store_value<F32>(x));
        else return store_value<K.out>(x);
    }
    typedef typename Storage<K.finish.bias == F64 ? F64 : F32>::Word Loaded;
};

}  // namespace gemmsim
