// The dimensions of N tensors of one shape, whose strides differ.
#pragma once
#include <string.h>
#include "api.h"

namespace gemmsim {

template <int N> struct StridedDims {
    struct Dim {
        int64_t size, stride[N];
    };
    int count = 0;
    Dim dim[MAX_BATCH_DIMS + 1];

    // `strides`: for each tensor, the strides of all dimensions, of which dimension `d` is added.
    void add(int64_t size, const int64_t* const (&strides)[N], int d) {
        dim[count].size = size;
        for (int i = 0; i < N; ++i) dim[count].stride[i] = strides[i][d];
        ++count;
    }
    // Sorts the first n dimensions by the strides of tensor `by`, the largest first.
    void sort(int n, int by) {
        for (int i = 1; i < n; ++i)
            for (int j = i; j > 0 && dim[j - 1].stride[by] < dim[j].stride[by]; --j) {
                const Dim t = dim[j];
                dim[j] = dim[j - 1];
                dim[j - 1] = t;
            }
    }
    // Makes one dimension of neighbours whose elements follow one another in all tensors. `may(d)`: whether dimension d, as it is before
    // the call, may be merged with the one before.
    template <class F> void merge(const F& may) {
        int out = 0;
        for (int d = 1; d < count; ++d) {
            const Dim outer = dim[out];
            if (may(d) && follows(outer, dim[d])) {
                dim[out] = dim[d];
                dim[out].size *= outer.size;
            } else {
                dim[++out] = dim[d];
            }
        }
        count = out + 1;
    }
    static bool follows(const Dim& outer, const Dim& inner) {
        bool all = true;
        for (int i = 0; i < N; ++i) all = all && outer.stride[i] == inner.stride[i] * inner.size;
        return all;
    }
    // Adds the offsets of element `index` of dimensions [first, last), in row-major order.
    void move(int64_t index, int first, int last, int64_t (&at)[N]) const {
        for (int d = last - 1; d >= first; --d) {
            const int64_t position = index % dim[d].size;
            index /= dim[d].size;
            step(d, position, at);
        }
    }
    // Adds the offsets of `n` elements along dimension d.
    void step(int d, int64_t n, int64_t (&at)[N]) const {
        for (int i = 0; i < N; ++i) at[i] += n * dim[d].stride[i];
    }
};

}  // namespace gemmsim
