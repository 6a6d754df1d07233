#!/usr/bin/env bash
# The CPU library for 64-bit Arm and the program that makes recorded calls, for tests/backends/test_aarch64.py; only what
# changed is compiled again. Arguments: the folder, and how much the compiler optimises.
#
# A short run's is not optimised: half the time to compile, the same bits. A long run has what wheels are made with.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${1:-build/aarch64_short} optimisation=${2:--O0}

cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DGEMMSIM_OPTIMISATION="$optimisation" \
    -DCMAKE_TOOLCHAIN_FILE="$PWD/cutlass_kernels/cmake/aarch64-linux-gnu.cmake"
cmake --build "$build" --parallel "${GEMMSIM_BUILD_JOBS:-$(nproc)}"
aarch64-linux-gnu-g++ -std=c++17 -O1 -Wall -o "$build/replay" tests/cpp/replay.cpp -ldl
