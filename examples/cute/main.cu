// Runs the products of gemm.h, on a GPU or on the host, and compares every output with a plain loop over k.
//
//   nvcc -std=c++20 -arch=sm_90a --expt-relaxed-constexpr -fmad=false -I... main.cu -o gemm
//   g++ -std=c++20 -x c++ -O1 -march=native -ffp-contract=off -pthread -I... main.cu -o gemm
//
// -I: gemmsim's include folder, CUTLASS's, CUDA's and its cccl (docs/howto/cute.md says how to print them).
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>
#include "gemm.h"
#if !defined(__CUDACC__)
#include <barrier>
#include <thread>
#endif

using namespace gemmsim;

// The accumulators: FP8 products in a register of 10 bits that they cannot leave, in one of 11 bits that rounds stochastically, in
// chunks of 16 whose totals are float, and through Hopper's own 14 bits with promotion every 128 terms.
using Fp8 = cutlass::float_e4m3_t;
constexpr StepConfig narrow = multiply_add<Fp8, Fp8>(cast_to(FloatFormat{6, 9}));
constexpr StepConfig random_half = multiply_add<Fp8, Fp8>(cast_to(E5M10, SR, 8));
constexpr StepConfig half_register = multiply_add<Fp8, Fp8>(cast_to(E5M10));
// Types with names of their own: nvcc writes a kernel's template arguments into C++ again, where it fails at those of a Cast.
struct Narrow : Gemm<StepMma<narrow, Range::IN_RANGE>, Fp8, Fp8> {};
struct Random : Gemm<StepMma<random_half>, Fp8, Fp8> {};
struct Chunked : Gemm<ChunkMma<half_register, 16, cast_to(FP32)>, Fp8, Fp8> {};
struct Promoted : PromotedGemm<InstructionMma<wgmma_fp8(E4M3, E4M3)>, Fp8, Fp8, cast_to(FP32), 128, 64, 32> {};

constexpr int M = 100, N = 72, K = 288;
constexpr uint64_t SEED = 7;

#if defined(__CUDACC__)
template <class Product> __global__ void __launch_bounds__(256) kernel(const GemmArgs args) {
    __shared__ alignas(16) unsigned char shared[sizeof(typename Product::Shared)];
    Product::run(args, *(typename Product::Shared*)shared, threadIdx.x, blockIdx.x, blockIdx.y);
}

// Where both the host and the device read and write.
static void* memory(size_t bytes) {
    void* p = nullptr;
    if (cudaMallocManaged(&p, bytes) != cudaSuccess) exit((fprintf(stderr, "no GPU memory\n"), 1));
    return p;
}
template <class Product> void launch(const GemmArgs& args, int x, int y) {
    kernel<Product><<<dim3(x, y), Product::THREADS>>>(args);
    const cudaError_t error = cudaDeviceSynchronize();
    if (error != cudaSuccess) exit((fprintf(stderr, "%s\n", cudaGetErrorString(error)), 1));
}
#else
// A block is 256 threads of the host that meet at a barrier.
static std::barrier<>* meeting;
extern "C" void gemmsim_host_sync() { meeting->arrive_and_wait(); }

static void* memory(size_t bytes) { return malloc(bytes); }
template <class Product> void launch(const GemmArgs& args, int x, int y) {
    for (int block = 0; block < x * y; ++block) {
        typename Product::Shared shared;
        std::barrier<> all(Product::THREADS);
        meeting = &all;
        std::vector<std::thread> threads;
        for (int t = 0; t < Product::THREADS; ++t) threads.emplace_back([&, t] { Product::run(args, shared, t, block % x, block / x); });
        for (std::thread& one : threads) one.join();
    }
}
#endif

// R_outer(total + sum of n terms from +0), run after run; n = 0: one sum, which is not rounded again.
template <StepConfig S, int TERMS, Cast OUTER> float by_loops(const Fp8* a, const Fp8* b, int row, int col) {
    float total = 0, sum = 0;
    for (int k = 0; k < K; ++k) {
        uint32_t draw = 0;
        if constexpr (S.add.mode >= SR) draw = draw_step(SEED, (uint64_t)row, (uint32_t)col, (uint64_t)k, SITE_ADD, S.add.rbits);
        sum = Step<S>::step(sum, float(a[row * K + k]), float(b[col * K + k]), 0, draw);
        if constexpr (TERMS != 0)
            if ((k + 1) % TERMS == 0) {
                total = Rounding<float, OUTER, false>::sum(total, sum, 0);
                sum = 0;
            }
    }
    return TERMS == 0 ? sum : total;
}

// The instruction's model, 32 terms at a time, in float every 128.
static float by_instructions(const Fp8* a, const Fp8* b, int row, int col) {
    constexpr HardwareModel model = wgmma_fp8(E4M3, E4M3);
    float total = 0, sum = 0;
    for (int k = 0; k < K; k += 32) {
        HeldOperands<32> o;
        for (int i = 0; i < 32; ++i) {
            o.a[i] = float(a[row * K + k + i]);
            o.b[i] = float(b[col * K + k + i]);
        }
        HardwareStep<model, Cast{}, HeldOperands<32>> step = {o, 32, false, sum};
        step.run();
        sum = step.c;
        if ((k + 32) % 128 == 0 || k + 32 == K) total += sum, sum = 0;
    }
    return total;
}

template <class Product, class WANT> bool check(const char* name, const GemmArgs& g, WANT want) {
    launch<Product>(g, (M + Product::TILE_M - 1) / Product::TILE_M, (N + Product::TILE_N - 1) / Product::TILE_N);
    int wrong = 0;
    for (int i = 0; i < M; ++i)
        for (int j = 0; j < N; ++j) {
            const float x = want((const Fp8*)g.a, (const Fp8*)g.b, i, j);
            wrong += memcmp(&x, &g.c[i * N + j], 4) != 0;
        }
    printf("%s: %d of %d outputs differ\n", name, wrong, M * N);
    return wrong == 0;
}

int main() {
    Fp8* const a = (Fp8*)memory(M * K);
    Fp8* const b = (Fp8*)memory(N * K);
    float* const c = (float*)memory(M * N * sizeof(float));
    srand(1);
    auto any = [] { return Fp8((float)(rand() % 257 - 128) / 64); };
    for (int i = 0; i < M * K; ++i) a[i] = any();
    for (int i = 0; i < N * K; ++i) b[i] = any();
    const GemmArgs args = {a, b, c, M, N, K, SEED};
    bool right = check<Narrow>("e4m3 : e6m9", args, by_loops<narrow, 0, Cast{}>);
    right &= check<Random>("e4m3 : e5m10/sr8", args, by_loops<random_half, 0, Cast{}>);
    right &= check<Chunked>("e4m3 : chunked(16, e5m10, fp32)", args, by_loops<half_register, 16, cast_to(FP32)>);
    right &= check<Promoted>("e4m3 : promote(hw(hopper, wgmma, e4m3), 128)", args, by_instructions);
    return right ? 0 : 1;
}
