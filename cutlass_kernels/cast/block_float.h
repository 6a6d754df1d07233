// Block floating point on CUDA: integers of a few bits under one power of two for each group of elements (cpu/block_float.h).
//
// Short groups are measured and rounded by one team of threads; of long ones, blocks measure slices first (MEASURE, an
// atomic maximum for each group) and round them in a second kernel (ROUND).
#pragma once
#include "gemmsim/device/block.h"
#include "gemmsim/device/storage.h"
#include "gemmsim/exact.h"
#include "gemmsim/philox.h"

namespace gemmsim {

constexpr int BFP_THREADS = 256, BFP_DIMS = 16, BFP_NO_EXPONENT = 127;
enum BlockFloatPass : int32_t { BFP_WHOLE = 0, BFP_MEASURE = 1, BFP_ROUND = 2 };

// What is known when the kernel is compiled.
struct BlockFloatConfig {
    DType src, dst;
    int32_t pass, mode, rbits, bits;
    bool lowest_code, keep_infinity;
};

// What is known when it is launched. gemmsim/backends/cuda/block_float.py mirrors this record. Dimensions: `outer` that
// tell groups apart, then `inner` inside a group; the last of them is cut into groups of `block` elements, unless that is 0.
struct BlockFloatLaunch {
    const void* src;
    void* dst;
    uint64_t* largest;  // MEASURE, ROUND: of each group, bits of a double
    int64_t groups, length, block, slice;  // length: elements of a whole group; slice: those that a team takes
    uint64_t seed;
    int32_t site, team, outer, inner;
    int64_t size[BFP_DIMS], src_stride[BFP_DIMS], dst_stride[BFP_DIMS], index_stride[BFP_DIMS];
};

struct Place {
    int64_t src, dst, index;
};

GEMMSIM_HD double whole_part(double x) {
#if defined(__CUDA_ARCH__)
    return ::trunc(x);
#else
    return __builtin_trunc(x);
#endif
}
GEMMSIM_HD double magnitude_of(double x) { return double_of(bits_of(x) & ~(1ull << 63)); }
GEMMSIM_HD double two_to(int e) { return double_of((uint64_t)(1023 + e) << 52); }
GEMMSIM_HD double nearest_whole(double t) { return (t + 0x1.8p52) - 0x1.8p52; }  // |t| < 2^51, or infinite

GEMMSIM_HD void raise_to(uint64_t* to, uint64_t x) {
#if defined(__CUDA_ARCH__)
    atomicMax((unsigned long long*)to, (unsigned long long)x);
#else
    if (x > *to) *to = x;
#endif
}

template <BlockFloatConfig K> struct BlockFloatKernel {
    typedef typename Storage<K.src>::Word Src;
    typedef typename Storage<K.dst>::Word Dst;
    typedef typename Storage<K.src == F64 ? F64 : F32>::Word Value;

    const BlockFloatLaunch& a;
    int64_t begin, end;  // elements of the group that this team takes
    int64_t cut;         // the group's number along the cut dimension
    Place base;

    GEMMSIM_HD void add(Place& p, int d, int64_t at) const {
        p.src += at * a.src_stride[d];
        p.dst += at * a.dst_stride[d];
        p.index += at * a.index_stride[d];
    }
    GEMMSIM_HD Place place(int64_t e) const {
        Place p = base;
        if (a.inner == 1) {
            add(p, a.outer, cut * a.block + e);
        } else {
            for (int d = a.outer + a.inner - 1; d >= a.outer; --d) {
                add(p, d, e % a.size[d]);
                e /= a.size[d];
            }
        }
        return p;
    }
    GEMMSIM_HD double value(const Place& p) const { return (double)load_value<K.src, Value>(((const Src*)a.src)[p.src]); }

    // Which group and slice of it the team `number` has; false past the last one.
    GEMMSIM_HD bool start(int64_t group, int64_t slice) {
        begin = slice * a.slice;
        end = 0;
        if (group >= a.groups) return false;
        base = Place{0, 0, 0};
        cut = 0;
        int64_t length = a.length, rest = group;
        if (a.block) {
            const int64_t n = a.size[a.outer], cuts = (n + a.block - 1) / a.block;
            cut = rest % cuts;
            rest /= cuts;
            length = n - cut * a.block < a.block ? n - cut * a.block : a.block;
        }
        for (int d = a.outer - 1; d >= 0; --d) {
            add(base, d, rest % a.size[d]);
            rest /= a.size[d];
        }
        end = begin + a.slice < length ? begin + a.slice : length;
        return true;
    }

    GEMMSIM_HD uint64_t measure(int64_t lane) const {
        uint64_t most = 0;
        for (int64_t e = begin + lane; e < end; e += a.team) {
            const uint64_t u = bits_of(value(place(e))) & ~(1ull << 63);
            if (u < 0x7FFull << 52 && u > most) most = u;
        }
        return most;
    }

    // Whether the magnitude w + f goes up from its whole part w; `rest`: there is a fraction, perhaps too small for f.
    static GEMMSIM_HD bool goes_up(double v, double w, double f, bool rest, uint32_t R) {
        const double scale = two_to(K.mode >= SR ? K.rbits : 0), r = (double)R;
        switch (K.mode) {
            case RNA: return f >= 0.5;
            case RND: return v < 0 ? f >= 0.5 : f > 0.5;
            case RNU: return v > 0 ? f >= 0.5 : f > 0.5;
            case RU: return rest && v > 0;
            case RD: return rest && v < 0;
            case RO: return rest && nearest_whole(w * 0.5) == w * 0.5;
            case SR: return whole_part(f * scale) + r >= scale;
            case SRB: return whole_part(f * scale * 2) + 2 * r + 1 >= 2 * scale;
            case SRC: return nearest_whole(f * scale) + r >= scale;
            default: return false;
        }
    }

    // The step 2^q is taken in two factors: float64's range is twice as wide as its largest power.
    GEMMSIM_HD void round(int64_t lane, uint64_t largest) const {
        const int top = largest >> 52 ? (int)(largest >> 52) - 1023 : largest ? bit_length(largest) - 1075 : BFP_NO_EXPONENT;
        const int q = top + 2 - K.bits, half = q / 2;
        const double up = two_to(-half), up_rest = two_to(half - q), down = two_to(half), down_rest = two_to(q - half);
        const double hi = (double)((1ll << (K.bits - 1)) - 1), lo = -hi - (K.lowest_code ? 1 : 0);
        for (int64_t e = begin + lane; e < end; e += a.team) {
            const Place p = place(e);
            const double v = value(p), t = v * up * up_rest;
            double r;
            if constexpr (K.mode == RNE) {
                r = nearest_whole(t);
            } else {
                const double w = whole_part(t), f = magnitude_of(t - w);
                uint32_t R = 0;
                if constexpr (K.mode >= SR) R = draw_element(a.seed, (uint64_t)p.index, a.site, K.rbits);
                r = goes_up(v, w, f, f > 0 || (t == 0 && v != 0), R) ? w + (v < 0 ? -1.0 : 1.0) : w;
            }
            r = r > hi ? hi : r;
            r = r < lo ? lo : r;
            double z = r * down * down_rest + 0.0;  // integers have no -0
            if (K.keep_infinity && is_inf(v)) z = v;
            ((Dst*)a.dst)[p.dst] = store_value<K.dst>((Value)(v == v ? z : canonical_nan()));
        }
    }
};

// Teams of a.team threads, BFP_THREADS / a.team of them a block, one after the other over slices, then over groups.
template <BlockFloatConfig K> GEMMSIM_HD void block_float_body(const BlockFloatLaunch& a, uint32_t tid, uint64_t block) {
    const int64_t teams = BFP_THREADS / a.team, number = (int64_t)block * teams + tid / a.team, lane = tid % a.team;
    const int64_t slices = (a.length + a.slice - 1) / a.slice;
    BlockFloatKernel<K> k{a, 0, 0, 0, {0, 0, 0}};
    const bool live = k.start(number / slices, number % slices);
    if constexpr (K.pass == BFP_ROUND) {
        if (live) k.round(lane, a.largest[number / slices]);
        return;
    }
    uint64_t* const shared = (uint64_t*)shared_memory();
    shared[tid] = live ? k.measure(lane) : 0;
    for (int h = a.team / 2; h > 0; h /= 2) {
        block_sync();
        if (lane < h && shared[tid + h] > shared[tid]) shared[tid] = shared[tid + h];
    }
    block_sync();
    const uint64_t largest = shared[tid - lane];
    if (!live) return;
    if constexpr (K.pass == BFP_WHOLE) k.round(lane, largest);
    else if (lane == 0) raise_to(a.largest + number / slices, largest);
}

}  // namespace gemmsim
