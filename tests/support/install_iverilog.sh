#!/usr/bin/env bash
# What tests/test_verilog_example.py needs, from Debian or Ubuntu: Icarus Verilog.
# Does nothing where it is; says what to install where it may not.
set -euo pipefail

command -v iverilog >/dev/null && command -v vvp >/dev/null && exit 0

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "error: needed for the Verilog example: iverilog (Debian, Ubuntu: apt-get install iverilog)" >&2
    exit 1
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends iverilog >/dev/null
