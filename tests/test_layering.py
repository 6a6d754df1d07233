"""Imports only go down: formats <- hardware <- arithmetic <- lowering <- backends <- ops; study and cli use the face.

Every import statement in the package is looked at, those inside functions too. The rules are in docs/design/index.md.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from support import ROOT, run_python

PACKAGE = ROOT / "gemmsim"
#: The face lists what people may ask for, the reference included; it loads a part only when a person names it.
FACE = PACKAGE / "__init__.py"

#: Lowest first. A module may import from its own layer and from lower ones.
LAYERS = "formats hardware arithmetic lowering backends ops libraries sliced probe nn optim mx tensor_quant emulation".split()
#: Thin modules in the package root that belong to a layer. The constructors in acc are arithmetic; what measures
#: accumulators on tensors there is an operator, so that acc stands as high as those (and loads them when called).
#: The others know nothing of this package: any part may use them, the faces too.
ROOT_MODULES = {
    **dict.fromkeys(("acc", "functional", "recipes"), "ops"),
    **dict.fromkeys(("_lazy", "_files", "_html", "_keywords", "_paths"), "formats"),
}
#: The slow exact reference stands beside: it may use these, and only tests and people use it.
REFERENCE_MAY_USE = {"formats", "arithmetic"}
#: Of the hardware layer it may use what is data: which instruction, which parameters, no arithmetic.
HARDWARE_TABLES = {
    f"gemmsim.hardware.{name}"
    for name in ("catalogue", "errors", "evidence", "instruction", "operands", "step_parameters")
}
#: Built on the public names alone: module of the package -> packages whose public names (``__all__``) it may use.
FACES = {
    "vectors": {"", "formats", "arithmetic"},
    "study": {"", "formats", "arithmetic", "acc", "hardware", "nn.weights", "vectors"},
    "cli": {
        "",
        "formats",
        "arithmetic",
        "acc",
        "backends.cpu",
        "backends.cuda",
        "backends.environment",
        "study",
        "vectors",
        "hardware",
        "emulation",
        "libraries",
    },
    "compat": {
        *("", "formats", "hardware", "arithmetic", "acc", "nn", "optim", "mx", "tensor_quant"),
        *("backends.cublas", "formats.dmatrix_names", "nn.undoing", "nn.weights", "ops.lazy_dynamo", "train"),
    },
    "train": {""},
    "comparison": {"", "formats", "arithmetic", "ops.arrays"},
    "__main__": {"cli"},
}
STANDARD_LIBRARY_ONLY = {"formats", "arithmetic", "lowering"}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def dotted(path: Path) -> str:
    """'formats.parse' for gemmsim/formats/parse.py; '' for the package itself."""
    parts = list(path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[tuple[str, str, int]]:
    """(module, name, line) of every import; relative ones resolved; name '' for ``import module``."""
    package = ["gemmsim", *path.relative_to(PACKAGE).parent.parts]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, "", node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                yield source, alias.name, node.lineno


def layer(module: str) -> str:
    """First part of a name inside gemmsim: 'formats' for 'gemmsim.formats.parse'; '' for gemmsim itself."""
    parts = module.split(".")
    top = parts[1] if len(parts) > 1 else ""
    return ROOT_MODULES.get(top, top)


def internal(path: Path) -> Iterator[tuple[str, str, int]]:
    """Imports of gemmsim; ``from gemmsim import formats`` counts as gemmsim.formats."""
    for module, name, line in imports(path):
        if module == "gemmsim" and (PACKAGE / name).is_dir() and name:
            yield f"gemmsim.{name}", "", line
        elif module.split(".")[0] == "gemmsim":
            yield module, name, line


def layer_of(path: Path) -> str:
    return layer(f"gemmsim.{dotted(path)}")


def of(*layers: str) -> list[Path]:
    return [path for path in modules() if layer_of(path) in layers]


def test_a_layer_imports_only_itself_and_lower_layers():
    for path in of(*LAYERS):
        mine = LAYERS.index(layer_of(path))
        for module, _, line in internal(path):
            target = layer(module)
            assert target in LAYERS and LAYERS.index(target) <= mine, f"{path}:{line} imports {module} from above"


#: Neither looks at the other: what both mean by a spec is in gemmsim/lowering, what both do with tensors in backends.
APART = {"backends.cpu": "gemmsim.backends.cuda", "backends.cuda": "gemmsim.backends.cpu"}


def test_a_backend_does_not_import_another():
    for path in [p for p in of("backends") if dotted(p).startswith((*APART,))]:
        other = APART[".".join(dotted(path).split(".")[:2])]
        for module, name, line in internal(path):
            full = f"{module}.{name}"
            assert module != other and not full.startswith(f"{other}.") and full != other, (
                f"{path}:{line} imports {module}"
            )


def test_the_reference_uses_formats_arithmetic_and_tables_alone():
    for path in of("reference"):
        for module, _, line in internal(path):
            allowed = layer(module) in REFERENCE_MAY_USE | {"reference"} or module in HARDWARE_TABLES
            assert allowed, f"{path}:{line} imports {module}"
        for module, _, line in imports(path):
            users_steps = dotted(path) == "reference.custom"  # functions of tensors; it imports torch when it calls one
            assert users_steps or module.split(".")[0] != "torch", f"{path}:{line} imports torch"


def test_the_reference_and_the_tables_load_no_torch():
    """What they import does not load it either."""
    code = "import sys, gemmsim.reference, gemmsim.acc, gemmsim.hardware; print(sorted(sys.modules))"
    loaded = ast.literal_eval(run_python(code).stdout)
    assert "gemmsim.reference.hardware" in loaded and "torch" not in loaded
    assert {name for name in loaded if name.startswith("gemmsim.hardware.")} <= HARDWARE_TABLES | {
        f"gemmsim.hardware.{name}" for name in ("amd", "chips", "nvidia", "describe")
    }


def test_nobody_imports_the_reference():
    for path in [p for p in modules() if p != FACE and layer_of(p) != "reference"]:
        for module, name, line in internal(path):
            assert layer(module) != "reference" and name != "reference", f"{path}:{line} imports the reference"


def test_study_and_cli_use_public_names_only():
    for path in of(*FACES):
        mine = dotted(path).split(".")[0]
        for module, name, line in internal(path):
            inside = module.split(".", 1)[1] if "." in module else ""
            if inside.split(".")[0] == mine or inside in ("_lazy", "_files", "_html", "_keywords", "_paths"):
                continue
            full = f"{inside}.{name}" if inside and name else inside
            allowed = inside in FACES[mine] or full in FACES[mine]
            assert allowed, f"{path}:{line} imports {module}, which is not a public module"
            if name and full not in FACES[mine]:
                assert name in public_names(inside), f"{path}:{line} imports {name}, which {module} does not export"
        for attribute, line in attributes_of_gemmsim(path):
            assert not attribute.startswith("_") or attribute == "__version__" or attribute == "__file__", (
                f"{path}:{line}"
            )


def test_formats_arithmetic_and_lowering_need_the_standard_library_alone():
    for path in of(*STANDARD_LIBRARY_ONLY):
        for module, _, line in imports(path):
            top = module.split(".")[0]
            types = dotted(path) == "formats.tensor_codec" and top == "torch"  # under TYPE_CHECKING; see the next test
            assert types or top == "gemmsim" or top in sys.stdlib_module_names, f"{path}:{line} imports {module}"


def test_formats_and_arithmetic_work_without_torch():
    code = "import sys, gemmsim.formats as f, gemmsim.arithmetic as a\nf.parse('e4m3').encode(1.0), a.GemmSpec.parse('e4m3 : fp32')\n"
    done = run_python(f"{code}assert 'torch' not in sys.modules")
    assert done.returncode == 0, done.stderr


def test_constructors_of_accumulators_work_without_torch():
    code = "import sys\nfrom gemmsim import acc\nacc.chunked(8, acc.kahan('bf16'), 'fp32')\nassert 'torch' not in sys.modules"
    done = run_python(code)
    assert done.returncode == 0, done.stderr


def test_the_face_loads_nothing_by_itself():
    """Its imports stand under TYPE_CHECKING, for people's editors and mypy."""
    for node in ast.parse(FACE.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            assert all(alias.name.split(".")[0] != "gemmsim" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level or node.module == "_lazy", f"line {node.lineno}"


def test_every_folder_has_a_place():
    known = {*LAYERS, *ROOT_MODULES, *FACES, "reference", "lib"}
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    files = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
    assert folders | files <= known, f"no layer for {sorted((folders | files) - known)}: add it to LAYERS or FACES"


def public_names(inside: str) -> list[str]:
    import importlib

    module = importlib.import_module(f"gemmsim.{inside}" if inside else "gemmsim")
    return list(getattr(module, "__all__", dir(module)))


def attributes_of_gemmsim(path: Path) -> Iterator[tuple[str, int]]:
    """(name, line) of every ``gs.name`` in a module that does ``import gemmsim as gs``."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "gs":
            yield node.attr, node.lineno
