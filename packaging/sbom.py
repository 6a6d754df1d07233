"""A software bill of materials (CycloneDX 1.6, JSON) of one wheel, which PEP 770 puts into its dist-info folder."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from datetime import datetime, timezone

__all__ = ["Build", "bill_of_materials"]

#: Libraries that the loader finds on the user's system, and where they come from. None is in the wheel.
_FOUND_WHEN_LOADED = {
    "libc.so.6": "the system's C library (glibc)",
    "libm.so.6": "the system's C library (glibc)",
    "libpthread.so.0": "the system's C library (glibc)",
    "libdl.so.2": "the system's C library (glibc)",
    "ld-linux-x86-64.so.2": "the system's C library (glibc)",
    "ld-linux-aarch64.so.1": "the system's C library (glibc)",
    "libgcc_s.so.1": "the system's GCC runtime",
    "libstdc++.so.6": "the system's C++ library (GCC)",
    "libgomp.so.1": "PyTorch's wheel, which brings its own (torch/lib), or the system",
}


@dataclass(frozen=True)
class Build:
    """What a bill of materials says about one wheel.

    Attributes:
        version: the package's version.
        wheel: the file name of the wheel.
        library: SHA-256 of the library inside.
        sources: the digest of the C++ sources (``source_digest``).
        needed: libraries that the loader looks for.
        requirements: the Python packages that the wheel's metadata asks for.
        tools: versions of the tools that built it, by name.
        epoch: the time of the build, in seconds since 1970.
    """

    version: str
    wheel: str
    library: str
    sources: str
    needed: frozenset[str]
    requirements: tuple[str, ...]
    tools: dict[str, str]
    epoch: int


def _found_later(kind: str, name: str, source: str) -> dict[str, object]:
    bundled = {"name": "gemmsim:bundled", "value": "false"}
    return {
        "type": kind,
        "bom-ref": f"not-bundled:{name}",
        "name": name,
        "description": source,
        "properties": [bundled],
    }


def _own_library(build: Build) -> dict[str, object]:
    return {
        "type": "file",
        "bom-ref": "libgemmsim_cpu.so",
        "name": "gemmsim/lib/libgemmsim_cpu.so",
        "description": "Compiled from gemmsim's own sources; no third-party source. It contains code that GCC's C++ "
        "headers define inline (GPL-3.0-or-later WITH GCC-exception-3.1), as every program of GCC does.",
        "hashes": [{"alg": "SHA-256", "content": build.library}],
        "licenses": [{"license": {"id": "Apache-2.0"}}],
        "properties": [{"name": "gemmsim:library_sources", "value": build.sources}],
    }


def bill_of_materials(build: Build) -> bytes:
    """Return the document. Equal arguments give equal bytes: its identifier is derived from the contents."""
    package = {
        "type": "library",
        "bom-ref": "gemmsim",
        "name": "gemmsim",
        "version": build.version,
        "purl": f"pkg:pypi/gemmsim@{build.version}?file_name={build.wheel}",
        "licenses": [{"license": {"id": "Apache-2.0"}}],
    }
    found = [_found_later("library", name, _FOUND_WHEN_LOADED[name]) for name in sorted(build.needed)]
    asked = [_found_later("library", line, "a Python package that pip installs") for line in build.requirements]
    tools = [{"type": "application", "name": name, "version": text} for name, text in sorted(build.tools.items())]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(build.epoch, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "lifecycles": [{"phase": "build"}],
            "tools": {"components": tools},
            "component": package,
        },
        "components": [_own_library(build), *found, *asked],
        "dependencies": [
            {"ref": "gemmsim", "dependsOn": ["libgemmsim_cpu.so", *(str(part["bom-ref"]) for part in asked)]},
            {"ref": "libgemmsim_cpu.so", "dependsOn": [str(part["bom-ref"]) for part in found]},
        ],
    }
    text = json.dumps(document, sort_keys=True)
    document["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, text)}"
    return (json.dumps(document, indent=2) + "\n").encode()
