// This file defines the C entry points and chooses the instruction set.
#include <atomic>
#include <new>
#include <stdlib.h>
#include <string.h>
#include "api.h"
#include "product/kernel_table.h"

namespace gemmsim {

static const Isa* find(const char* name, int* error) {
    *error = 0;
#if defined(GEMMSIM_X86)
    __builtin_cpu_init();
    const bool fma = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool wide = fma && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
#endif
    if (!name || !*name) {
#if defined(GEMMSIM_HAS_AVX512)
        if (wide) return isa_avx512fp16() ? isa_avx512fp16() : isa_avx512();
#endif
#if defined(GEMMSIM_HAS_AVX2)
        if (fma) return isa_avx2();
#endif
#if defined(GEMMSIM_NEON)
        return isa_neon();
#else
        return isa_base();
#endif
    }
#if defined(GEMMSIM_HAS_AVX512)
    if (!strcmp(name, "avx512fp16") && wide && isa_avx512fp16()) return isa_avx512fp16();
    if (!strcmp(name, "avx512") && wide) return isa_avx512();
#endif
#if defined(GEMMSIM_HAS_AVX2)
    if (!strcmp(name, "avx2") && fma) return isa_avx2();
#endif
#if defined(GEMMSIM_NEON)
    if (!strcmp(name, "neon")) return isa_neon();
#else
    if (!strcmp(name, "baseline")) return isa_base();
#endif
#if defined(GEMMSIM_X86)
    if ((!strcmp(name, "avx512") && wide) || (!strcmp(name, "avx2") && fma)) {
        *error = 3;  // the machine has it, and this library was built without it
        return nullptr;
    }
#endif
    static const char* const known[] = {"avx512fp16", "avx512", "avx2", "neon", "baseline"};
    for (const char* one : known)
        if (!strcmp(name, one)) *error = 2;
    if (!*error) *error = 1;
    return nullptr;
}

static std::atomic<const Isa*> chosen{nullptr};

static const Isa& isa() {
    const Isa* t = chosen.load(std::memory_order_acquire);
    if (!t) {
        int error;
        t = find(nullptr, &error);
        chosen.store(t, std::memory_order_release);
    }
    return *t;
}

const char* isa_of_kernels() { return isa().name; }

}  // namespace gemmsim

using namespace gemmsim;

int gemmsim_abi(int64_t* sizes) {
    sizes[0] = sizeof(Cast);
    sizes[1] = sizeof(GemmArgs);
    sizes[2] = sizeof(QuantizeArgs);
    return 7;
}

const char* gemmsim_isa() { return isa().shown; }

int gemmsim_set_isa(const char* name) {
    int error;
    const Isa* t = find(name, &error);
    if (t) chosen.store(t, std::memory_order_release);
    return error;
}

// The exception that a signal handler raised in this thread, until gemmsim_raised() returns it.
static thread_local Interrupted interruption;

static int64_t code_of(const GemmArgs& g, const Gather* gather, const Lookup* lookup, const EventArgs* events) {
    try {
        return run_gemm(isa(), g, gather, lookup, events).packed();
    } catch (const std::bad_alloc&) { return -1; } catch (const Interrupted& x) {
        interruption = x;
        return -4;
    }
}

int64_t gemmsim_gemm(const GemmArgs* g) {
    if (g->member_count && !(g->extras && g->extras->select)) return -3;
    return code_of(*g, nullptr, nullptr, nullptr);
}

int64_t gemmsim_gathered_gemm(const GemmArgs* g, const Gather* gather) {
    return g->member_count ? -3 : code_of(*g, gather, nullptr, nullptr);
}

int64_t gemmsim_lookup_gemm(const GemmArgs* g, const Lookup* lookup) {
    return g->member_count ? -3 : code_of(*g, nullptr, lookup, nullptr);
}

int64_t gemmsim_counted_gemm(const GemmArgs* g, const EventArgs* events) {
    return g->member_count ? -3 : code_of(*g, nullptr, nullptr, events);
}

void gemmsim_interpreter(const Interpreter* python) { interpreter() = *python; }

void gemmsim_raised(void** three) {
    memcpy(three, interruption.raised, sizeof interruption.raised);
    interruption = Interrupted();
}

int gemmsim_quantize(const QuantizeArgs* q) { return run_quantize(isa(), *q); }

const char* gemmsim_kernel_rule(int32_t kernel, int32_t column) {
    if (kernel < 0 || kernel >= KERNELS) return nullptr;
    const KernelRule& rule = KERNEL_RULES[kernel];
    const char* const columns[] = {rule.name,   rule.file, rule.possible_in_words, rule.pays_in_words, rule_of(rule.fallback).name,
                                   rule.details};
    return column >= 0 && column < (int32_t)(sizeof columns / sizeof *columns) ? columns[column] : nullptr;
}

const char* gemmsim_build() { return GEMMSIM_BUILD; }
