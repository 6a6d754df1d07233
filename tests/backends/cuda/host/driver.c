// A libcuda that does nothing and says what it was asked, one line a call: the real cuda-core and cuda-bindings run
// against it, so that the way a kernel is loaded and launched is tested without a GPU. Every function not listed succeeds.
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static void* current;

static int succeed(void) { return 0; }
static int driver_version(int* v) { *v = 13000; return 0; }
static int device_count(int* n) { *n = 2; return 0; }
static int device_get(int* d, int i) { *d = i; return 0; }
static int context_retain(void** c, int d) { *c = (void*)(uintptr_t)(0x1000 + d); return 0; }
static int context_get(void** c) { *c = current; return 0; }
static int context_set(void* c) {
    current = c;
    printf("context %p\n", c);
    return 0;
}
static int library_load(void** l, const void* code) {
    *l = (void*)0x77;
    printf("load %.4s\n", (const char*)code + 1);
    return 0;
}
static int library_kernel(void** k, void* l, const char* name) {
    *k = (void*)0xABC;
    printf("kernel %s of %p\n", name, l);
    return 0;
}
static int kernel_attribute(int attribute, int value, void* k, int device) {
    printf("attribute %d = %d of %p on %d\n", attribute, value, k, device);
    return 0;
}
static int launch(void* k, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                  void* stream, void** parameters, void** extra) {
    const uint64_t* record = (const uint64_t*)parameters[0];
    printf("launch %p grid %u %u %u block %u %u %u shared %u stream %p record %llx %llx extra %d\n", k, gx, gy, gz, bx, by,
           bz, shared, stream, (unsigned long long)record[0], (unsigned long long)record[1], extra != 0);
    return gx == 666 ? 701 : 0;  // CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
}

static int encode_tiled(void* map, int type, unsigned rank, void* address, const uint64_t* dims, const uint64_t* strides,
                        const unsigned* box, const unsigned* steps, int interleave, int swizzle, int l2, int fill) {
    if (rank != 3 || (uintptr_t)map % 64) return 1;
    printf("map type %d at %p dims %llu %llu %llu strides %llu %llu box %u %u %u steps %u %u %u modes %d %d %d %d\n", type, address,
           (unsigned long long)dims[0], (unsigned long long)dims[1], (unsigned long long)dims[2], (unsigned long long)strides[0],
           (unsigned long long)strides[1], box[0], box[1], box[2], steps[0], steps[1], steps[2], interleave, swizzle, l2, fill);
    memset(map, 0x5A, 128);
    return address == (void*)0x666 ? 1 : 0;  // CUDA_ERROR_INVALID_VALUE
}

int cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t flags, int* status) {
    static const struct {
        const char* name;
        void* function;
    } known[] = {
        {"cuDriverGetVersion", driver_version}, {"cuDeviceGetCount", device_count}, {"cuDeviceGet", device_get},
        {"cuDevicePrimaryCtxRetain", context_retain}, {"cuCtxGetCurrent", context_get}, {"cuCtxSetCurrent", context_set},
        {"cuLibraryLoadData", library_load}, {"cuLibraryGetKernel", library_kernel},
        {"cuKernelSetAttribute", kernel_attribute}, {"cuLaunchKernel", launch}, {"cuTensorMapEncodeTiled", encode_tiled}, {"cuGetProcAddress", cuGetProcAddress_v2},
    };
    *function = succeed;
    for (unsigned i = 0; i < sizeof known / sizeof *known; ++i)
        if (strcmp(known[i].name, name) == 0) *function = known[i].function;
    if (status) *status = 0;
    return 0;
}
int cuGetProcAddress(const char* name, void** function, int version, uint64_t flags) {
    return cuGetProcAddress_v2(name, function, version, flags, 0);
}
int cuInit(unsigned flags) { return 0; }
int cuDriverGetVersion(int* v) { return driver_version(v); }
