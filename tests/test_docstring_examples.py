"""The examples in docstrings are run, and every public name has one."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from support import ROOT

import gemmsim as gs
from gemmsim.arithmetic import accumulator, lookup
from gemmsim.formats import parsing

PARSER = doctest.DocTestParser()
#: Parts of messages and long lines may be "...".
OPTIONS = doctest.ELLIPSIS
#: Packages of which every public function and class has an example; of gemmsim itself those that come from these.
COMPLETE = (
    *("acc", "accumulator_search", "arithmetic", "comparison", "formats", "functional", "hardware", "libraries"),
    *("ops", "probe", "reference", "sliced", "vectors"),
    *("emulation", "mx", "nn", "optim", "recipes", "study", "tensor_quant", "train"),
)
#: Modules of gemmsim's own names outside of these packages that are complete, too.
OWN = ("gemmsim", "gemmsim._keywords")
#: Modules of compat that are no packages, but that the systems' users import from; of its packages all are complete.
COMPAT = (
    *("microxcaling.simd_ops", "microxcaling.vector_ops", "mptorch.number", "mptorch.utils"),
    *(f"modelopt.torch.quantization.{name}" for name in ("model_calib", "nn.functional")),
    *(f"torchao.float8.float8_{name}" for name in ("linear_utils", "ops", "scaling_utils", "training_tensor", "utils")),
    *(f"torchao.prototype.mx_formats.{name}" for name in ("custom_cast", "kernels", "mx_linear", "mx_tensor")),
    *(f"torchmx.{name}" for name in ("config", "custom_float_cast", "dtypes", "layers.mx_linear")),
    *(f"torchmx.{name}" for name in ("mx_quantization_utils", "mx_tensor", "quant_api", "utils")),
)
#: Methods that users call.
METHODS = (
    *(gs.GemmSpec.parse, gs.GemmSpec.of, gs.GemmSpec.explain, gs.GemmSpec.to_json, gs.GemmSpec.from_json),
    *(gs.GemmSpec.transposed, gs.Accumulator.parse, gs.Accumulator.explain, gs.Accumulator.to_json),
    *(gs.Accumulator.from_json, gs.Cast.describe, gs.Cast.to_json, gs.Cast.from_json, gs.QAffineFormats.of),
    *(gs.formats.FloatFormat.from_widths, gs.formats.FloatFormat.decode, gs.formats.FloatFormat.encode),
    *(gs.formats.FloatFormat.values, gs.formats.FloatFormat.codes, gs.formats.FloatFormat.describe),
    *(gs.formats.FixedFormat.decode, gs.formats.FixedFormat.encode, gs.Events.shares, gs.Comparison.to_dict),
    *(gs.Identification.to_dict, gs.Trace.to_dict, gs.sliced.Sliced.explain, gs.sliced.Sliced.to_json),
    *(gs.libraries.Library.plan, gs.libraries.Library.chain, gs.libraries.Library.spec, gs.libraries.Library.matmul),
    *(gs.libraries.Plan.explain, gs.cublas_acceleration.enable, gs.cutlass_acceleration.enable, gs.audit.__call__),
)
#: Functions of other packages that people meet first.
FIRST = (gs.recipes.hopper_fp8, gs.emulate, gs.convert, gs.capture)


def documented(tree: ast.AST, within: str = "") -> Iterator[tuple[str, str]]:
    """(name, docstring) of the functions and classes that have examples."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            text = ast.get_docstring(node) or ""
            if ">>> " in text:
                yield f"{within}{node.name}", text
            yield from documented(node, f"{within}{node.name}.")


def public() -> dict[str, Any]:
    """The public functions and classes of the complete packages, and gemmsim's own, by their names."""
    found = {}
    packages = [importlib.import_module(f"gemmsim.{name}") for name in COMPLETE]
    homes = tuple(f"gemmsim.{name}" for name in COMPLETE)
    for package in (*packages, gs):
        for name in package.__all__:
            value = getattr(package, name)
            value = inspect.unwrap(value) if callable(value) else value  # recipes are cached functions
            if not (inspect.isclass(value) or inspect.isfunction(value)):
                continue
            home = value.__module__
            if package is not gs or home in OWN or any(home == one or home.startswith(f"{one}.") for one in homes):
                found[f"{package.__name__}.{name}"] = value
    return found


def compat() -> dict[str, Any]:
    """The same of gemmsim.compat; names that its packages only pass on belong to others."""
    found = {}
    homes = [name for _, name, is_package in pkgutil.walk_packages(gs.compat.__path__, "gemmsim.compat.") if is_package]
    for module in map(importlib.import_module, (*homes, *(f"gemmsim.compat.{name}" for name in COMPAT))):
        for name in getattr(module, "__all__", None) or [name for name in dir(module) if name[0] != "_"]:
            value = getattr(module, name)
            if (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__.startswith("gemmsim.compat."):
                found[f"{value.__module__}.{value.__qualname__}"] = value
    return found


PUBLIC = {**public(), **compat()}


def examples() -> dict[str, str]:
    """Docstrings with examples: those in the source, and those that are made of a template."""
    found = {}
    for path in sorted((ROOT / "gemmsim").rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if ">>> " in source:
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            found.update({f"{module}.{name}": text for name, text in documented(ast.parse(source))})
    made = {f"{one.__module__}.{one.__qualname__}": inspect.getdoc(one) or "" for one in PUBLIC.values()}
    return {**{name: text for name, text in made.items() if ">>> " in text}, **found}


EXAMPLES = examples()


@pytest.fixture
def registries(monkeypatch):
    """Names that an example registers are forgotten after it."""
    monkeypatch.setattr(parsing, "_REGISTERED", dict(parsing._REGISTERED))
    monkeypatch.setattr(accumulator, "_CONSTRUCTORS", dict(accumulator._CONSTRUCTORS))
    monkeypatch.setattr(lookup, "_TABLES", dict(lookup._TABLES))
    yield
    parsing._parse.cache_clear()
    accumulator.forget()


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_gives_what_it_shows(name, registries):
    test = PARSER.get_doctest(EXAMPLES[name], {"gs": gs, "torch": torch}, name, None, None)
    said: list[str] = []
    result = doctest.DocTestRunner(verbose=False, optionflags=OPTIONS).run(test, out=said.append)
    skipped = sum(doctest.SKIP in one.options for one in test.examples)  # what needs a GPU
    assert result.attempted + skipped and not result.failed, "".join(said)


def check_example(documented: Any) -> None:
    lines = (inspect.getdoc(documented) or "").split("\nExample:\n")
    assert len(lines) == 2, "a section 'Example:' at the end of the docstring"
    assert 1 <= len(PARSER.get_examples(lines[1])) <= 3


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_function_or_class_has_an_example(name):
    check_example(PUBLIC[name])


@pytest.mark.parametrize("function", (*METHODS, *FIRST), ids=lambda one: one.__qualname__)
def test_methods_and_functions_that_people_meet_first_have_an_example(function):
    check_example(function)
