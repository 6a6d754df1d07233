// gemmsim's accumulators as MMA atoms of CuTe, for a user's own TiledMMA and cute::gemm: docs/howto/cute.md. These headers need
// C++20 and NVIDIA's CUTLASS headers (BSD 3-clause, the package nvidia-cutlass). No header of gemmsim/ outside cute/ includes
// those.
#pragma once
#include "gemmsim/cute/chunked.h"
#include "gemmsim/cute/instruction_mma.h"
#include "gemmsim/cute/packed_mma.h"
#include "gemmsim/cute/step_mma.h"
