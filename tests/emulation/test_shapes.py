"""What is remembered of operators on fake tensors is what PyTorch answers to an equal call, and to no other."""

from __future__ import annotations

import ast
from itertools import islice
from pathlib import Path

import pytest
import torch
from emulation.samples import operators
from support import LONG
from support.models import MODELS, make
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map_only

import gemmsim
import gemmsim as gs
from gemmsim.emulation import fake_tensors
from gemmsim.emulation.fake_tensors import NEUTRAL, Answers
from gemmsim.emulation.observe.recorder import Recorder

SHARES = 4


def memory(value):
    return [t.untyped_storage()._cdata for t in tree_leaves(value) if isinstance(t, torch.Tensor)]


def described(result, given):
    """A result as a program sees it: kinds, layouts, devices, sizes of memory and whose it is."""
    if isinstance(result, (tuple, list)):
        return type(result), [described(part, given) for part in result]
    if not isinstance(result, torch.Tensor):
        return result
    owners = [i for i, at in enumerate(memory(given)) if [at] == memory(result)]
    layout = (result.shape, result.stride(), result.storage_offset(), result.untyped_storage().nbytes())
    kind = (type(result), result.dtype, result.device, result.layout, result.requires_grad, result.is_inference())
    return kind, layout, owners, torch._C._dispatch_keys(result).raw_repr(), sorted(vars(result))


class Compared(Answers):
    """Asks PyTorch each time, too, where that changes nothing, and compares. ``known``: names of calls remembered."""

    def __init__(self, mode):
        super().__init__(mode)
        self.known = []

    def __call__(self, func, args, kwargs):
        with torch._C._DisableTorchDispatch():
            key = self._key(func, args, kwargs)
        known = key is not None and self._known.get(key) is not None
        result = super().__call__(func, args, kwargs)
        if known:
            self.known.append(func._schema.name)
            if not func._schema.is_mutable:
                wanted = func(*args, **kwargs)
                with torch._C._DisableTorchDispatch():
                    assert described(result, (args, kwargs)) == described(wanted, (args, kwargs)), func
        return result


class Watching:
    """A recorder whose calls are answered by ``Compared``, and the mode of fake tensors."""

    def __init__(self):
        self.mode, self.recorder = FakeTensorMode(), Recorder()
        self.answers = self.recorder.call = Compared(self.mode)

    def __enter__(self):
        self.recorder.__enter__()
        self.mode.__enter__()
        return self

    def __exit__(self, *error):
        self.mode.__exit__(*error)
        self.recorder.__exit__(*error)

    def asked(self, call):
        """Results of a call made twice, and whether the second one was remembered."""
        before = len(self.answers.known)
        first = call()
        middle = len(self.answers.known)
        second = call()
        assert middle == before, "the first of these calls was known already"
        return first, second, len(self.answers.known) > middle


@pytest.mark.parametrize("spec", [":fp32", "e4m3 : e5m10/sr8", None])
@pytest.mark.parametrize("name", [name for name in MODELS if name != "mixture"])  # whose products' sizes are values
def test_dry_runs_of_models_are_as_pytorch_has_them(name, spec, monkeypatch):
    model, arguments = make(name)
    made = []

    def compared(mode):
        made.append(Compared(mode))
        return made[-1]

    plain = gs.audit.dry_run(model, arguments, spec).to_dict()
    monkeypatch.setattr(fake_tensors, "Answers", compared)
    assert gs.audit.dry_run(model, arguments, spec).to_dict() == plain
    assert len(made[0].known) > 30
    if spec is not None:
        with gs.emulate(spec):
            real = gs.audit(model, **arguments)
        assert real.to_dict() == plain


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("share", range(SHARES))
def test_samples_of_all_operators_twice(share):
    known = set()
    for op in operators()[share::SHARES]:
        torch.manual_seed(0)
        for sample in islice(op.sample_inputs_func(op, "cpu", torch.float32, False), None if LONG else 2):
            with Watching() as watching:
                given = sample.input, sample.args, sample.kwargs
                if any(t.layout is not torch.strided for t in tree_leaves(given) if isinstance(t, torch.Tensor)):
                    continue
                given = tree_map_only(torch.Tensor, _fake, given)
                for _ in range(2):
                    try:
                        op(given[0], *given[1], **given[2])
                    except AssertionError:
                        raise
                    except Exception:  # values asked for, or no fake kernel: as without
                        break
                known.update(watching.answers.known)
    assert len(known) > 60


def _fake(t):
    return torch.empty_strided(t.size(), t.stride(), dtype=t.dtype, device=t.device)


def test_what_results_depend_on():
    """Calls that differ in what tells their results apart are calls of their own."""
    with Watching() as watching:
        x, n, z = torch.empty(4, 6), torch.empty(4, dtype=torch.int64), torch.empty(3, dtype=torch.complex64)
        calls = [
            lambda: n * 2, lambda: n * 2.0, lambda: n * True, lambda: x.sum(1), lambda: x.sum(1, keepdim=True),
            lambda: x + 1, lambda: x.mT + 1, lambda: x[1:] + 1, lambda: x.double() + 1, lambda: x.view(2, 12),
            lambda: x.view(3, 8), lambda: torch.cat([x, x]), lambda: torch.cat([x, x[:2]]), lambda: z.view(3, 1),
            lambda: torch.zeros(2, device="cpu"), lambda: x.new_empty(3),
            lambda: x.new_empty(4), lambda: x.split(2), lambda: x.split(3),
        ]  # fmt: skip
        for call in calls:
            first, second, known = watching.asked(call)
            assert known and [a.dtype for a in tree_leaves(first)] == [b.dtype for b in tree_leaves(second)]
        first, second, known = watching.asked(lambda: z.conj().view(3, 1))
        assert not known and first.is_conj() and second.is_conj()  # and not the view of z that there was
        assert (n * 2).dtype == torch.int64 and (n * 2.0).dtype == torch.float32
        with torch.inference_mode():
            assert (x.detach() * 3).is_inference()
        assert not (x.detach() * 3).is_inference()
        torch.set_default_dtype(torch.float64)
        try:
            assert (n * 2.0).dtype == torch.float64
        finally:
            torch.set_default_dtype(torch.float32)


def test_views_share_memory_and_writing_returns_the_argument():
    with Watching() as watching:
        for _ in range(2):
            x = torch.empty(4, 6)
            view = x.mT[1:].unsqueeze(0)
            assert memory(view) == memory(x) and memory(x + 1) != memory(x)
            assert x.mul_(2) is x and x.add_(x) is x
            assert x.view(-1)._base is x
            leaf = torch.empty(4, 6, requires_grad=True)
            with pytest.raises(RuntimeError, match="leaf"):
                leaf.mul_(2)
    assert {"aten::transpose", "aten::mul_"} <= set(watching.answers.known)


def test_errors_and_values_are_pytorchs():
    with Watching() as watching:
        x, one = torch.empty(4, 6), torch.tensor(2.0)
        for _ in range(3):
            with pytest.raises(RuntimeError, match="broadcast"):
                x + torch.empty(5)
            with pytest.raises(RuntimeError):
                x @ torch.empty(4, 6)
            assert (one * 3).item() == 6  # a constant, whose value PyTorch keeps
            with pytest.raises(Exception, match="aten._local_scalar_dense"):
                x.sum().item()
            with pytest.raises(Exception, match="aten.nonzero"):
                x.nonzero()
    assert not {"aten::_local_scalar_dense", "aten::nonzero"} & set(watching.answers.known)


def test_what_is_made_again_is_made_as_pytorch_makes_it():
    """All that a fake tensor has besides its layout is copied from one that PyTorch's constructor made."""
    with Watching() as watching:
        x = torch.empty(4, 6)
        first, second, _ = watching.asked(lambda: x * 2)
    wanted = FakeTensor(watching.mode, torch.empty(4, 6, device="meta"), torch.device("cpu"))
    for found in (first, second):
        assert vars(found).keys() == vars(wanted).keys()
        assert all(vars(found)[name] is value or vars(found)[name] == value for name, value in vars(wanted).items())
        assert found.device == torch.device("cpu") and nn.Parameter(found).is_leaf
    answers = Answers(watching.mode)
    answers._protect = None  # another PyTorch: by its constructor
    with watching.mode, torch._C._DisableTorchDispatch():
        found = answers._made(fake_tensors._New(fake_tensors._described(x), None), ())
    assert described(found, ()) == described(x, ())


def test_modes_with_symbols_are_left_to_pytorch():
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    with FakeTensorMode(shape_env=ShapeEnv()):
        model = nn.Linear(4, 3)
    report = gs.audit.dry_run(model, torch.empty(2, 4), ":fp32")
    assert [r.shape for r in report.emulated] == [(1, 2, 4, 3), (1, 3, 2, 4)]


def test_no_fake_reads_what_is_neutral():
    """A fake of ours that looked at a seed or a site would give a remembered answer to another call."""
    seen = 0
    for path in sorted(Path(gemmsim.__file__).parent.rglob("*operators.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and (node.name.endswith("_fake") or node.name == "_fake"):
                seen += 1
                passed = {
                    name.id for call in ast.walk(node) if isinstance(call, ast.Call)
                    and getattr(call.func, "id", "").endswith("_fake") for name in call.args if isinstance(name, ast.Name)
                }  # fmt: skip
                read = {name.id for part in node.body for name in ast.walk(part) if isinstance(name, ast.Name)}
                assert not (read & NEUTRAL) - passed, f"{path.name}: {node.name} reads {read & NEUTRAL}"
    assert seen > 12
