// A libcuda of which only the version can be asked: what the GPU kit asks before anything else. STANDIN_DRIVER=12040: one
// for CUDA 12.4. Everything else of a driver is replaced in Python (standin_gemmsim.py).
#include <stdlib.h>

int cuDriverGetVersion(int* version) {
    const char* wanted = getenv("STANDIN_DRIVER");
    *version = wanted ? atoi(wanted) : 13000;
    return 0;
}
