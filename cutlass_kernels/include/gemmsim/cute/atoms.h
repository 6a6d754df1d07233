// gemmsim's accumulators as MMA atoms of CuTe, for TiledMMA and cute::gemm of one's own: docs/howto/cute.md. Needs C++20 and NVIDIA's
// CUTLASS headers (BSD 3-clause, the package nvidia-cutlass), which no other header of gemmsim/ includes.
#pragma once
#include "gemmsim/cute/chunked.h"
#include "gemmsim/cute/instruction_mma.h"
#include "gemmsim/cute/packed_mma.h"
#include "gemmsim/cute/step_mma.h"
