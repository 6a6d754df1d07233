// Runs a kernel's text on the host: included before it (g++ -include). The threads of a block are fibers of one stack
// each, switched at every barrier; blocks run one after the other. Without barriers (`fibers` = 0) plain calls do.
#pragma once
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#define __global__
#define __launch_bounds__(...)
#define __grid_constant__

struct Dim3 {
    unsigned x, y, z;
};
static Dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace host {

constexpr size_t STACK = 256 << 10;  // registers by exponent of doubles take 100 kB
static ucontext_t scheduler, *fiber;
static unsigned current, finished;
static unsigned char* shared;
static void (*entry)();

inline void trampoline() {
    entry();
    ++finished;
    for (;;) swapcontext(&fiber[current], &scheduler);  // never runs again
}

// Asynchronous copies of each thread, in its groups. They are done when it waits for their group, so that a wait that is missing
// shows; or at once (GEMMSIM_HOST_EARLY), so that a place that is still read shows. What nobody waits for is never done.
struct Copy {
    void* to;
    const void* from;
    unsigned bytes, group;
};
struct Copies {
    Copy copy[1024];
    unsigned first, last, group;
};
static Copies* copies;
static bool early;

inline void carry_out(const Copy& one) {
    if (one.from) memcpy(one.to, one.from, one.bytes);
    else memset(one.to, 0, one.bytes);
}

// One block: all threads in turns, each up to its next barrier. A barrier that some threads skip deadlocks a GPU; here
// the finished ones are passed over.
inline void run_fibers(unsigned threads, unsigned char* stacks) {
    for (unsigned t = 0; t < threads; ++t) {
        getcontext(&fiber[t]);
        fiber[t].uc_stack.ss_sp = stacks + t * STACK;
        fiber[t].uc_stack.ss_size = STACK;
        fiber[t].uc_link = nullptr;
        makecontext(&fiber[t], trampoline, 0);
    }
    for (unsigned t = 0; t < threads; ++t) copies[t].first = copies[t].last = copies[t].group = 0;
    for (finished = 0; finished < threads;)
        for (unsigned t = 0; t < threads; ++t) {
            current = threadIdx.x = t;
            swapcontext(&scheduler, &fiber[t]);
        }
}

template <class Args> inline const Args& arguments(const void* p = nullptr) {
    static const void* held;
    if (p) held = p;
    return *(const Args*)held;
}

// Memory of `bytes` bytes, in units of 128, that ends at a page which nobody may touch: an access behind it ends the process, as it
// takes the GPU away.
struct Fenced {
    static constexpr size_t PAGE = 4096;
    size_t size;
    unsigned char *pages, *data;

    void open(size_t bytes) {
        const size_t whole = (bytes + 127) & ~(size_t)127;
        size = (whole + PAGE - 1) / PAGE * PAGE;
        pages = (unsigned char*)mmap(nullptr, size + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        mprotect(pages + size, PAGE, PROT_NONE);
        data = pages + size - whole;
    }
    void close() { munmap(pages, size + PAGE); }
};

template <class Args, void (*KERNEL)(Args)> int run(const void* args, unsigned gx, unsigned gy, unsigned gz, unsigned threads, size_t shared_bytes, int fibers) {
    arguments<Args>(args);
    entry = [] { KERNEL(arguments<Args>()); };
    gridDim = {gx, gy, gz};
    blockDim = {threads, 1, 1};
    Fenced memory;
    memory.open(shared_bytes);
    shared = memory.data;
    unsigned char* stacks = fibers ? (unsigned char*)malloc(threads * STACK) : nullptr;
    fiber = fibers ? (ucontext_t*)malloc(threads * sizeof(ucontext_t)) : nullptr;
    copies = fibers ? (Copies*)calloc(threads, sizeof(Copies)) : nullptr;
    early = getenv("GEMMSIM_HOST_EARLY") != nullptr;
    const char* const step = getenv("GEMMSIM_HOST_STEP");  // only every so many blocks, where there are too many
    for (unsigned z = 0; z < gz; ++z)
        for (unsigned y = 0; y < gy; ++y)
            for (unsigned x = 0; x < gx; x += step ? atoi(step) : 1) {
                blockIdx = {x, y, z};
                memset(shared, 0xA5, shared_bytes);  // not initialised on a GPU either
                if (fibers) run_fibers(threads, stacks);
                else for (unsigned t = 0; t < threads; ++t) threadIdx.x = t, entry();
            }
    free(copies);
    free(fiber);
    free(stacks);
    memory.close();
    return 0;
}

template <class Args> constexpr unsigned size_of(void (*)(Args)) { return sizeof(Args); }

}  // namespace host

extern "C" inline void gemmsim_host_sync() { swapcontext(&host::fiber[host::current], &host::scheduler); }
extern "C" inline unsigned char* gemmsim_host_shared() { return host::shared; }
extern "C" inline void gemmsim_host_copy(void* to, const void* from, int bytes) {
    host::Copies& own = host::copies[host::current];
    const host::Copy one = {to, from, (unsigned)bytes, own.group};
    if (host::early) return host::carry_out(one);
    if (own.last - own.first == 1024) abort();
    own.copy[own.last++ % 1024] = one;
}
extern "C" inline void gemmsim_host_commit() { ++host::copies[host::current].group; }
extern "C" inline void gemmsim_host_wait(int groups) {
    host::Copies& own = host::copies[host::current];
    while (own.first != own.last && own.copy[own.first % 1024].group + groups < own.group) host::carry_out(own.copy[own.first++ % 1024]);
}

// After the kernel's text: how Python calls it.
#define GEMMSIM_HOST_ENTRY                                                                                             \
    template <class Args> int call(void (*)(Args), const void* a, unsigned x, unsigned y, unsigned z, unsigned t, size_t s, int f) { \
        return host::run<Args, gemmsim_kernel>(a, x, y, z, t, s, f);                                                   \
    }                                                                                                                  \
    extern "C" int gemmsim_host_run(const void* a, unsigned x, unsigned y, unsigned z, unsigned t, size_t s, int f) {  \
        return call(gemmsim_kernel, a, x, y, z, t, s, f);                                                              \
    }                                                                                                                  \
    extern "C" unsigned gemmsim_host_args_size() { return host::size_of(gemmsim_kernel); }
