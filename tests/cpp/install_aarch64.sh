#!/usr/bin/env bash
# What tests/backends/test_aarch64.py needs, from Debian or Ubuntu: a cross compiler for 64-bit Arm and qemu's user mode.
# Does nothing where they are; says what to install where it may not.
set -euo pipefail

missing=()
command -v aarch64-linux-gnu-g++ >/dev/null || missing+=(g++-aarch64-linux-gnu)
command -v qemu-aarch64 >/dev/null || missing+=(qemu-user)
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "error: needed for the tests on aarch64: ${missing[*]} (Debian, Ubuntu: apt-get install ${missing[*]})" >&2
    exit 1
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
