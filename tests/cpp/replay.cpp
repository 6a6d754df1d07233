// Makes the calls of a file (tests/support/calls.py) to a library and compares what memory holds afterwards, bit by bit.
//
//   replay LIBRARY FILE [INSTRUCTION SET]
//
// Every call is made twice: as it is, and by a thread that flushes subnormals, which must still flush them afterwards.
// Prints what differs; how many calls of each function there were; the codes of the kernels that ran (Report::packed); a sum.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <map>
#include <set>
#include <string>
#include <vector>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace {

[[noreturn]] void fail(const char* what, const char* detail) {
    fprintf(stderr, "replay: %s: %s\n", what, detail);
    exit(2);
}

// Whether this thread flushes subnormals.
uint64_t state() {
#if defined(__x86_64__)
    return _mm_getcsr() & 0xFFC0;
#elif defined(__aarch64__)
    uint64_t x;
    __asm__ volatile("mrs %0, fpcr" : "=r"(x));
    return x;
#else
    return 0;
#endif
}

void set_state(uint64_t x) {
#if defined(__x86_64__)
    _mm_setcsr((unsigned)x);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"(x) : "memory");
#else
    (void)x;
#endif
}

#if defined(__x86_64__)
const uint64_t FLUSHING = 0x8040;
#else
const uint64_t FLUSHING = 1u << 24;
#endif

struct Reader {
    FILE* file;
    bool more() {
        const int c = getc(file);
        if (c != EOF) ungetc(c, file);
        return c != EOF;
    }
    void bytes(void* to, size_t n) {
        if (n && fread(to, 1, n, file) != n) fail("file", "ends in the middle of a call");
    }
    template <class T> T number() {
        T x;
        bytes(&x, sizeof x);
        return x;
    }
};

struct Memory {
    std::vector<unsigned char> before, after;
    bool compared;
    size_t offset;  // of its address from a multiple of 64, where recorded
    unsigned char* raw = nullptr;
    unsigned char* at = nullptr;

    void fill() {
        if (!raw) {
            raw = (unsigned char*)aligned_alloc(64, (before.size() + 192) / 64 * 64);
            if (!raw) fail("memory", "none left");
            at = raw + offset;
        }
        if (!before.empty()) memcpy(at, before.data(), before.size());
    }
};

struct Pointer {
    uint32_t memory;
    uint64_t offset;
    uint32_t to;
    uint64_t to_offset;
};

struct Call {
    std::string name;
    int64_t result;
    uint32_t arguments;
    std::vector<Memory> memories;
    std::vector<Pointer> pointers;

    explicit Call(Reader& r) {
        name.resize(r.number<uint32_t>());
        r.bytes(&name[0], name.size());
        result = r.number<int64_t>();
        arguments = r.number<uint32_t>();
        memories.resize(r.number<uint32_t>());
        pointers.resize(r.number<uint32_t>());
        for (Memory& m : memories) {
            m.before.resize(r.number<uint64_t>());
            m.offset = r.number<uint32_t>();
            const uint32_t flags = r.number<uint32_t>();
            m.compared = !(flags & 2);
            r.bytes(m.before.data(), m.before.size());
            m.after = m.before;
            if (flags & 1) r.bytes(m.after.data(), m.after.size());
        }
        for (Pointer& p : pointers) {
            p.memory = r.number<uint32_t>();
            p.offset = r.number<uint64_t>();
            p.to = r.number<uint32_t>();
            p.to_offset = r.number<uint64_t>();
        }
    }
    ~Call() {
        for (Memory& m : memories) free(m.raw);
    }

    // Number of memories that differ; `kernels`: increased by those that ran.
    int run(void* library, long at, const char* how, std::set<int>* kernels) {
        void* function = dlsym(library, name.c_str());
        if (!function) fail("no such function", name.c_str());
        for (Memory& m : memories) m.fill();
        for (const Pointer& p : pointers) {
            const unsigned char* to = memories[p.to].at + p.to_offset;
            memcpy(memories[p.memory].at + p.offset, &to, sizeof to);
        }
        int64_t got;
        if (arguments == 2) got = ((int64_t (*)(void*, void*))function)(memories[0].at, memories[1].at);
        else if (name == "gemmsim_gemm") got = ((int64_t (*)(void*))function)(memories[0].at);
        else got = ((int (*)(void*))function)(memories[0].at);
        int wrong = 0;
        const bool product = name.find("gemm", 7) != std::string::npos;  // answers which kernels ran: others on another processor
        if (got < 0 || result < 0 || !product) wrong += report(got == result, at, how, "answer", 0, got, result);
        if (product && got >= 0)
            for (int at = 4; at < 4 + 4 * 14; at += 14)  // Report::packed of api.h: up to four kernels of 14 bits
                if (const int code = (int)(got >> at) & 0x3FFF) kernels->insert(code);
        for (size_t i = 0; i < memories.size(); ++i) {
            const Memory& m = memories[i];
            if (!m.compared || m.after.empty() || !memcmp(m.at, m.after.data(), m.after.size())) continue;
            size_t byte = 0;
            while (m.at[byte] == m.after[byte]) ++byte;
            uint64_t x = 0, y = 0;
            const size_t from = byte & ~(size_t)7, n = m.after.size() - from < 8 ? m.after.size() - from : 8;
            memcpy(&x, m.at + from, n);
            memcpy(&y, m.after.data() + from, n);
            wrong += report(false, at, how, "memory", (long)from, (int64_t)x, (int64_t)y);
        }
        return wrong;
    }
    int report(bool right, long at, const char* how, const char* what, long byte, int64_t got, int64_t want) const {
        if (!right)
            printf("call %ld, %s%s: %s at byte %ld is %016llx, expected %016llx\n", at, name.c_str(), how, what, byte,
                   (unsigned long long)got, (unsigned long long)want);
        return right ? 0 : 1;
    }
};

}  // namespace

int main(int count, char** words) {
    if (count < 3) fail("usage", "replay LIBRARY FILE [INSTRUCTION SET]");
    void* library = dlopen(words[1], RTLD_NOW);
    if (!library) fail("library", dlerror());
    const auto set_isa = (int (*)(const char*))dlsym(library, "gemmsim_set_isa");
    if (count > 3 && set_isa(words[3])) fail("no such instruction set here", words[3]);
    Reader reader = {fopen(words[2], "rb")};
    if (!reader.file) fail("file", words[2]);
    char magic[16];
    reader.bytes(magic, sizeof magic);
    if (memcmp(magic, "gemmsim calls 1\n", sizeof magic)) fail("file", "holds no calls");
    long calls = 0, wrong = 0;
    std::set<int> kernels;
    std::map<std::string, long> counts;
    for (; reader.more(); ++calls) {
        Call call(reader);
        bool bad = call.run(library, calls, "", &kernels) != 0;
        ++counts[call.name];
        const uint64_t own = state();
        set_state(own | FLUSHING);
        bad |= call.run(library, calls, ", flushing", &kernels) != 0;
        if ((state() & FLUSHING) != FLUSHING) {
            printf("call %ld, %s: the caller no longer flushes subnormals\n", calls, call.name.c_str());
            bad = true;
        }
        set_state(own);
        wrong += bad;
    }
    for (const auto& one : counts) printf("%s: %ld\n", one.first.c_str(), one.second);
    printf("kernels:");
    for (const int one : kernels) printf(" %d", one);
    printf("\n");
    const auto isa = (const char* (*)())dlsym(library, "gemmsim_isa");
    printf("%ld of %ld calls have the recorded bits on %s\n", calls - wrong, calls, isa());
    return wrong ? 1 : 0;
}
