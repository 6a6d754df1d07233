"""Trains the networks that the package ships, and shows how much another training changes.

    python -m gemmsim.study.networks.make --out FOLDER          # the file as it is shipped, up to the machine's sums
    python -m gemmsim.study.networks.make --retrain 6           # accuracy of six trainings in an e5m2 register

PyTorch's sums differ between processors and versions in the last bits, so the file of another machine may differ.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from gemmsim._files import replacing

from ..errors import StudyError
from ..files import make_folder
from .digits import FILE, PARAMETERS, Data, Network, exact_logits, load_data, logits
from .training import train

__all__ = ["SHOWN", "main", "retrained", "write"]

#: Orders of summation that ``--retrain`` shows, in e5m2.
SHOWN = {
    "sequential": ":e5m2",
    "rtz": ":e5m2/rtz",
    "chunk16": ":chunked(16, e5m2)",
    "pairwise": ":pairwise(e5m2)",
    "kahan": ":kahan(e5m2)",
}


def write(network: Network, folder: Path) -> Path:
    """Writes the parameters as safetensors into ``folder``.

    Raises:
        StudyError: without safetensors, or a folder that cannot be made.
    """
    try:
        from safetensors.torch import save
    except ImportError as error:
        raise StudyError("install safetensors with: pip install 'gemmsim[study]'.") from error
    path = make_folder(folder) / FILE
    content = save({name: getattr(network, name).contiguous() for name in PARAMETERS})
    with replacing(path) as temporary:
        temporary.write_bytes(content)
    return path


def retrained(data: Data, seed: int, **training: int) -> dict[str, float]:
    """Test accuracy of the training with ``seed``: exact, and in e5m2 under each order of ``SHOWN``."""
    network = train(data, seed=seed, **training)
    passes = {"exact": exact_logits(network, data.test_images)}
    passes |= {label: logits(network, data.test_images, spec, seed=0) for label, spec in SHOWN.items()}
    return {label: float((found.argmax(1) == data.test_labels).double().mean()) for label, found in passes.items()}


def main(words: Sequence[str] | None = None) -> None:
    """Does what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m gemmsim.study.networks.make", description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="Write the network here.")
    parser.add_argument("--retrain", type=int, default=0, metavar="N", help="Train with seeds 0 ... N - 1.")
    asked = parser.parse_args(words)
    if asked.out is None and asked.retrain < 1:
        parser.error("nothing to do: give --out FOLDER or --retrain N")
    data = load_data()
    if asked.out is not None:
        network = train(data)
        print(f"{write(network, asked.out)} {network.fingerprint()}")
    for seed in range(asked.retrain):
        found = retrained(data, seed)
        print(f"seed {seed}: " + ", ".join(f"{label} {value:.3f}" for label, value in found.items()), flush=True)


if __name__ == "__main__":
    main()
