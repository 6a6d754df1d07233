"""Digests of all that decides what is measured of a kernel, so that a kernel nothing changed for is not compiled again.

What is digested: the kernel's text, every header of gemmsim that it includes (and those include), the compile options,
the versions of compiler and NVIDIA's headers, the program that reads machine code and the versions of its tools. What a
header includes is read from its lines; an ``#include`` that this cannot follow is an error, never left out. Comments,
docstrings and the width of blanks are not digested.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib.metadata import version
from pathlib import Path

from gemmsim.backends.cuda import KernelSource
from gemmsim.backends.cuda.jit import sass_report
from gemmsim.backends.cuda.jit.compile import OPTIONS, compiler_version
from gemmsim.backends.cuda.jit.toolchain import header_root, toolchain

_DIRECTIVE = re.compile(r"^\s*#\s*(?:include|include_next|import|embed)\b(?P<what>.*)$", re.MULTILINE)
_QUOTED = re.compile(r"^\s*(?:\"(?P<own>[^\"]+)\"|<(?P<system>[^>]+)>)\s*(?://.*|/\*.*)?$")
#: Headers of these folders of <...> are NVIDIA's; those without a folder (stdint.h) are the compiler's own.
_PACKAGED = ("cuda", "cute", "cutlass", "cccl", "nv")
#: Packages that make the machine code or read it.
_PACKAGES = (
    "nvidia-cuda-nvrtc",
    "nvidia-cuda-runtime",
    "nvidia-cuda-cccl",
    "nvidia-cutlass",
    "nvidia-cuda-cuobjdump",
    "nvidia-cuda-nvdisasm",
)


#: Blanks and comments, or what may look like them and is none.
_BLANK = re.compile(r"""(?P<blank>(?:\s|//[^\n]*|/\*.*?\*/)+)|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL)


class UnknownInclude(ValueError):
    """A line that includes something this cannot follow."""


def _resolved(name: str, folders: tuple[Path, ...], where: str) -> Path:
    for folder in folders:
        if (folder / name).is_file():
            return (folder / name).resolve()
    raise UnknownInclude(f'{where} includes "{name}", which none of {", ".join(map(str, folders))} has')


def included(text: str, where: str, root: Path, beside: Path | None = None) -> tuple[Path, ...]:
    """The headers of gemmsim, under ``root``, that ``text`` itself includes. ``beside``: folder of the file it is of.

    Raises:
        UnknownInclude: if a directive is neither ``"..."`` of a file that is there nor ``<...>`` of NVIDIA's or C's.
    """
    folders = ((beside,) if beside else ()) + (root / "include", root)
    found = []
    for directive in _DIRECTIVE.finditer(text):
        target = _QUOTED.match(directive["what"])
        if target is None:
            raise UnknownInclude(f"{where}: {directive[0].strip()}")
        if target["own"]:
            found.append(_resolved(target["own"], folders, where))
        elif "/" in target["system"] and target["system"].split("/")[0] not in _PACKAGED:
            raise UnknownInclude(f"{where} includes <{target['system']}>, whose version is in no digest")
    return tuple(found)


@cache
def _included_by(path: Path, root: Path) -> tuple[Path, ...]:
    return included(path.read_text(encoding="utf-8"), str(path), root, path.parent)


def headers_of(text: str, where: str, root: Path | None = None) -> list[Path]:
    """Every header of gemmsim that compiling ``text`` may read, in a fixed order.

    Raises:
        UnknownInclude: as ``included`` does.
    """
    root = (root or header_root()).resolve()
    found: set[Path] = set()
    waiting = list(included(text, where, root))
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += _included_by(path, root)
    return sorted(found)


def tokens(text: str) -> str:
    """C++ ``text`` without its comments, with one blank or line end for several.

    As it is where a raw string or a comment that goes on after a backslash could be taken for something else.
    """
    if 'R"' in text or re.search(r"//[^\n]*\\\n", text):
        return text

    def one(found: re.Match[str]) -> str:
        blank = found["blank"]
        return found[0] if blank is None else "\n" if "\n" in blank else " "

    return _BLANK.sub(one, text).strip()


def statements(text: str) -> str:
    """Python ``text`` without its docstrings and lines of comment; as it is where other strings have three quotes."""
    if re.search(r'[=(,\[{+:][ \t]*"""|\b[rfbRFB]{1,2}"""', text):
        return text
    return re.sub(r'^[ \t]*(?:#[^\n]*|""".*?""")[ \t]*\n', "", text, flags=re.MULTILINE | re.DOTALL)


@cache
def _content(path: Path) -> bytes:
    return hashlib.sha256(tokens(path.read_text(encoding="utf-8")).encode()).digest()


@cache
def _tools() -> bytes:
    packages = [(package, version(package)) for package in _PACKAGES]
    reader = statements(Path(sass_report.__file__).read_text(encoding="utf-8"))
    return repr((packages, compiler_version(), sorted(OPTIONS.items()), reader)).encode()


def kernel_digest(source: KernelSource, arch: str, root: Path | None = None) -> str:
    """32 hexadecimal digits, the same on every machine with the same compiler, headers and tools.

    Raises:
        PackageError: if the compiler is not installed.
        UnknownInclude: as ``included`` does.
    """
    toolchain()
    root = (root or header_root()).resolve()
    digest = hashlib.sha256(_tools())
    for part in (str(source), tokens(source.text), arch, str(source.work), source.hot):
        digest.update(f"{len(part)}:{part}".encode())
    for path in headers_of(source.text, str(source), root):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + _content(path))
    return digest.hexdigest()[:32]
