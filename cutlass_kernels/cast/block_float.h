// Rounds to formats of tensors on CUDA: block floating point, which is integers of a few bits under one power of two for each group
// of elements, and the kinds of cast/finite_floats.h. The CPU's counterpart is cpu/casts/block_float.h.
//
// One team of threads measures and rounds a short group. Long groups take two kernels: blocks first measure slices (MEASURE, an
// atomic maximum for each group), and the second kernel rounds them (ROUND).
#pragma once
#include "cast/finite_floats.h"
#include "gemmsim/device/block.h"
#include "gemmsim/philox.h"

namespace gemmsim {

constexpr int BFP_THREADS = 256, BFP_DIMS = 16, BFP_NO_EXPONENT = 127;
enum BlockFloatPass : int32_t { BFP_WHOLE = 0, BFP_MEASURE = 1, BFP_ROUND = 2 };
// The kinds, numbered as in the CPU library: integers under a shared power of two; single floats; floats under a shared power of
// two; integers under a shared float.
enum class BlockKind : int32_t { SHARED_EXPONENT = 0, FINITE_FLOATS = 1, SCALED_FLOATS = 2, SCALED_INTEGERS = 3 };

// What is known when the kernel is compiled.
struct BlockFloatConfig {
    DType src, dst;
    int32_t pass, mode, rbits, bits;
    bool lowest_code, keep_infinity;
    BlockKind kind;
    FiniteFloat element, scaler;
    // SCALED_FLOATS: the scale's exponent lies this far below that of the largest magnitude.
    int32_t shift;
    bool clamp;     // SCALED_INTEGERS
};

// What is known when the kernel is launched. gemmsim/backends/cuda/casts/block_float.py mirrors this record. The first `outer`
// dimensions distinguish groups; the next `inner` lie inside a group. Unless `block` is 0, the last dimension is split into groups
// of `block` elements.
struct BlockFloatLaunch {
    const void* src;
    void* dst;
    uint64_t* largest;  // MEASURE, ROUND: of each group, bits of a double
    int64_t groups, length, block, slice;  // length: elements of a whole group; slice: elements of a team
    uint64_t seed;
    int32_t site, team, outer, inner;
    int64_t size[BFP_DIMS], src_stride[BFP_DIMS], dst_stride[BFP_DIMS], index_stride[BFP_DIMS];
};

struct Place {
    int64_t src, dst, index;
};

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
    typedef typename Storage<K.src == F64 && K.kind == BlockKind::SHARED_EXPONENT ? F64 : F32>::Word Value;

    const BlockFloatLaunch& a;
    int64_t begin, end;  // elements of the group that this team takes
    int64_t cut;         // the group's number along the split dimension
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

    // Selects the group and the slice of this team. Returns false past the last group.
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

    // The largest finite magnitude, as a double's bits. For scaled integers it is the largest of all, NaN included, as a float's
    // bits.
    GEMMSIM_HD uint64_t measure(int64_t lane) const {
        uint64_t most = 0;
        for (int64_t e = begin + lane; e < end; e += a.team) {
            const double v = value(place(e));
            uint64_t u = bits_of(v) & ~(1ull << 63);
            if constexpr (K.kind == BlockKind::SCALED_INTEGERS) u = to_bits((float)v) & 0x7FFFFFFFu;
            else if (u >= 0x7FFull << 52) continue;
            if (u > most) most = u;
        }
        return most;
    }
    static GEMMSIM_HD int exponent_of(uint64_t largest) {
        return largest >> 52 ? (int)(largest >> 52) - 1023 : largest ? bit_length(largest) - 1075 : BFP_NO_EXPONENT;
    }
    GEMMSIM_HD uint32_t draw(const Place& p) const {
        if constexpr (K.mode >= SR) return draw_element(a.seed, (uint64_t)p.index, a.site, K.rbits);
        return 0;
    }
    GEMMSIM_HD void put(const Place& p, Value y) const { ((Dst*)a.dst)[p.dst] = store_value<K.dst>(y); }

    GEMMSIM_HD void round(int64_t lane, uint64_t largest) const {
        if constexpr (K.kind == BlockKind::SHARED_EXPONENT) round_shared(lane, largest);
        else if constexpr (K.kind == BlockKind::SCALED_INTEGERS) round_scaled_integers(lane, largest);
        else round_floats(lane, largest);
    }

    GEMMSIM_HD void round_floats(int64_t lane, uint64_t largest) const {
        const int e0 = K.kind == BlockKind::SCALED_FLOATS ? exponent_of(largest) - K.shift : 0;
        const double up = two_to(-e0), down = two_to(e0);
        for (int64_t e = begin + lane; e < end; e += a.team) {
            const Place p = place(e);
            put(p, (float)(round_finite<K.element, K.rbits>(value(p) * up, draw(p)) * down));
        }
    }

    GEMMSIM_HD void round_scaled_integers(int64_t lane, uint64_t largest) const {
        constexpr double most = (double)((1ll << (K.bits - 1)) - 1);
        const float top = from_bits<float>((uint32_t)largest);
#if defined(__CUDA_ARCH__)
        const float c = __fdiv_rn(top, (float)most);
#else
        const float c = top / (float)most;
#endif
        const float scale = (float)round_finite<K.scaler, 0>((double)c, 0);
        const double limit = K.clamp ? most : double_of(0x7FFull << 52);
        for (int64_t e = begin + lane; e < end; e += a.team) {
            const Place p = place(e);
            const float x = (float)value(p);
            if (c > 0) put(p, round_quotient<K.mode, K.rbits>(x, c, scale, limit, draw(p)));
            else put(p, x == x ? x : quiet_nan<float>());  // zeros alone, or a NaN
        }
    }

    // The step 2^q is applied as two factors, because float64's range is twice as wide as its largest power.
    GEMMSIM_HD void round_shared(int64_t lane, uint64_t largest) const {
        const int q = exponent_of(largest) + 2 - K.bits, half = q / 2;
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
                r = goes_up<K.mode, K.rbits>(v, w, f, f > 0 || (t == 0 && v != 0), draw(p)) ? w + (v < 0 ? -1.0 : 1.0) : w;
            }
            r = r > hi ? hi : r;
            r = r < lo ? lo : r;
            double z = r * down * down_rest + 0.0;  // integers have no -0
            if (K.keep_infinity && is_inf(v)) z = v;
            put(p, (Value)(v == v ? z : canonical_nan()));
        }
    }
};

// Teams have a.team threads, and a block has BFP_THREADS / a.team of them. Consecutive teams take the slices of a group, then the
// next group.
template <BlockFloatConfig K> GEMMSIM_HD void block_float_body(const BlockFloatLaunch& a, uint32_t tid, uint64_t block) {
    const int64_t teams = BFP_THREADS / a.team, number = (int64_t)block * teams + tid / a.team, lane = tid % a.team;
    const int64_t slices = (a.length + a.slice - 1) / a.slice;
    BlockFloatKernel<K> k{a, 0, 0, 0, {0, 0, 0}};
    const bool live = k.start(number / slices, number % slices);
    if constexpr (K.pass == BFP_ROUND) {
        if (live) k.round(lane, a.largest[number / slices]);
        return;
    }
    if constexpr (K.kind == BlockKind::FINITE_FLOATS) {
        if (live) k.round(lane, 0);
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
