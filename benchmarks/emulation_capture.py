"""10,000 records of operands captured to a file: how much the process grows, and what a record costs.

Resident memory is read after the first tenth, when everything is loaded, and at the end. It must not grow.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import torch
from harness import Report, options

import gemmsim as gs

#: At most this share of what is written may stay in memory: names and offsets of the records.
MOST_SHARE = 0.05


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def main() -> None:
    args = options(__doc__ or "")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    records, m, k, n = (1000 if args.quick else 10_000), 64, 128, 64
    a, b = torch.randn(m, k), torch.randn(k, n)
    report = Report(args.out)
    for spec in (None, ":fp32"):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "operands.safetensors"
            with gs.emulate(spec), gs.capture(to=file) as grown:
                for i in range(records):
                    if i == records // 10:
                        before, start, written = resident(), time.process_time(), grown.size
                    a @ b
                seconds, more = time.process_time() - start, resident() - before
            written, size = grown.size - written, file.stat().st_size
        with gs.emulate(spec):
            start = time.process_time()
            for _ in range(records // 10):
                a @ b
            alone = (time.process_time() - start) / (records // 10)
        report.add(
            bench="emulation_capture", spec=spec or "native", records=records, file_mb=size / 1e6,
            grown_mb=more / 1e6, share=more / written, met=more / written <= MOST_SHARE,
            us_per_record=1e6 * seconds / (records * 0.9), us_alone=1e6 * alone,
        )  # fmt: skip
    report.close()


if __name__ == "__main__":
    main()
