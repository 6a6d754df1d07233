#!/usr/bin/env bash
# The whole GPU check on a machine without internet, from a bundle alone:
#
#   benchmarks/gpu_run.sh --out DIR --minutes N        in the folder that `make gpu-bundle` wrote
#
# DIR gets results.jsonl, one line for each finding, when it is made. Call it again to go on where it stopped.
# PYTHON names the Python with PyTorch (python3). Nothing is installed outside of --work (the bundle's folder `work`).
# Exit codes: 0 all was found and agrees, 1 something differs, 2 it cannot run here or smoke failed, 3 call again.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${PYTHON:-python3}
if ! command -v "$python" >/dev/null 2>&1; then
    echo "error: '$python' not found; allowed: a Python with PyTorch. Name one: PYTHON=/path/to/python $0 ..." >&2
    exit 2
fi
exec "$python" "$here/gpu_install.py" "$@"
