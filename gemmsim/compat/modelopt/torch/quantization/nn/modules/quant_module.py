"""``modelopt.torch.quantization.nn.modules.quant_module``: bases of quantised modules, and their registry."""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from gemmsim.nn import Emulated, call_children
from gemmsim.nn.weights import own_forward, refuse_computed
from gemmsim.tensor_quant import QUANT_DESC_8BIT_PER_TENSOR, QuantLayer, TensorQuantizer

__all__ = ["QuantInputBase", "QuantLinearConvBase", "QuantModule", "QuantModuleRegistry"]


class QuantModule(Emulated, metaclass=ABCMeta):  # for its ``register``; ABC would change the layout
    """The base class of modules with quantisers. gemmsim's own quantised layers count as such.

    A subclass has ``_setup``, which makes the quantisers, and a ``forward`` that calls them. ``register`` says which
    class it replaces.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> isinstance(mtq.nn.QuantConv2d(2, 3, 3), mtq.nn.QuantModule)
        True
    """

    def __getattr__(self, name: str) -> Any:
        value = super().__getattr__(name)  # type: ignore[misc]
        change = self.__dict__.get("_dynamic_attributes", {}).get(name)
        return value if change is None else change(self, value)

    def _register_temp_attribute(self, name: str, value: Any) -> None:
        setattr(self, name, value)

    def _register_dynamic_attribute(self, name: str, change: Callable[[Any, Any], Any]) -> None:
        """``self.name`` is ``change(self, value)`` of the parameter from now on."""
        self.__dict__.setdefault("_dynamic_attributes", {})[name] = change

    def fold_weight(self) -> None:
        """As the function ``fold_weight``."""
        fold_weights(self)  # type: ignore[arg-type]


QuantModule.register(QuantLayer)


class QuantInputBase(QuantModule):
    """The base class of modules with a quantised input. Their output is quantised where that is enabled.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> isinstance(mtq.nn.QuantMaxPool2d(2), mtq.nn.QuantInputBase)
        True
    """

    input_quantizer: TensorQuantizer
    output_quantizer: TensorQuantizer
    default_quant_desc_input: Any = QUANT_DESC_8BIT_PER_TENSOR
    default_quant_desc_output: Any = QUANT_DESC_8BIT_PER_TENSOR

    def forward(self, input: Tensor, *args: Any, **kwargs: Any) -> Any:
        """The original forward pass of the quantised input; the first part of a tuple is the output."""
        output = super().forward(self.input_quantizer(input), *args, **kwargs)  # type: ignore[misc]
        if isinstance(output, tuple):
            return (self.output_quantizer(output[0]), *output[1:])
        return self.output_quantizer(output)

    def _setup(self) -> None:
        self.input_quantizer = TensorQuantizer(self.default_quant_desc_input)
        self.output_quantizer = TensorQuantizer(self.default_quant_desc_output)
        self.output_quantizer.disable()


class QuantLinearConvBase(QuantInputBase):
    """The base class of modules with a quantised ``weight`` as well: inside ``forward``, ``self.weight`` is quantised.

    Example:
        >>> import gemmsim.compat.modelopt.torch.quantization as mtq
        >>> isinstance(mtq.nn.QuantLinear(4, 2), mtq.nn.QuantLinearConvBase)
        True
    """

    weight_quantizer: TensorQuantizer
    default_quant_desc_weight: Any = QUANT_DESC_8BIT_PER_TENSOR
    _enable_weight_quantization = False

    @contextmanager
    def quantize_weight(self) -> Iterator[None]:
        """A context in which ``self.weight`` is quantised."""
        self._enable_weight_quantization = True
        held = self.__dict__.get("weight")  # where a hook has put what it computed, which ``__getattr__`` never sees
        if held is not None:
            self.__dict__["weight"] = self.weight_quantizer(held)
        try:
            yield
        finally:
            self._enable_weight_quantization = False
            if held is not None:
                self.__dict__["weight"] = held

    def forward(self, input: Tensor, *args: Any, **kwargs: Any) -> Any:
        """The original forward pass of the quantised input and weight."""
        with self.quantize_weight():
            return super().forward(input, *args, **kwargs)

    def _setup(self) -> None:
        super()._setup()
        self.weight_quantizer = TensorQuantizer(self.default_quant_desc_weight)
        self._register_dynamic_attribute("weight", _weight)


QuantLinearConvBase.register(QuantLayer)
QuantInputBase.register(QuantLayer)


def _weight(module: QuantLinearConvBase, weight: Tensor) -> Tensor:
    return module.weight_quantizer(weight) if module._enable_weight_quantization else weight


class _Registry:
    """Quantised classes of plain ones, each with the name that configurations call it by ("nn.Linear").

    A subclass of a registered class counts as that class while it has the same ``forward``. A module whose ``forward``
    is an attribute of its own counts as none.
    """

    def __init__(self) -> None:
        self._classes: dict[type, tuple[str, type]] = {}
        self._made: dict[tuple[type, type], type] = {}

    def register(self, names: Mapping[type, str]) -> Callable[[type], type]:
        """A decorator: makes the class the quantised version of each class in ``names``."""

        def put(quantised: type) -> type:
            for original, name in names.items():
                self._classes[original] = (name, quantised)
            return quantised

        return put

    def unregister(self, original: type) -> None:
        """Forget a class. ``KeyError`` for a class that is not registered."""
        if original not in self._classes:
            known = ", ".join(name for name, _ in self._classes.values())
            raise KeyError(
                f"unregister: {original.__name__}; allowed: registered classes: {known}.\n  Register it first."
            )
        del self._classes[original]

    def _find(self, item: Any) -> tuple[str, type] | None:
        if isinstance(item, str):
            return next((pair for pair in self._classes.values() if pair[0] == item), None)
        if isinstance(item, nn.Module) and own_forward(item):
            return None  # which no class replaces
        wanted = item if isinstance(item, type) else type(item)
        if wanted in self._classes:
            return self._classes[wanted]
        for base in wanted.__mro__:
            if base in self._classes and wanted.forward is base.forward:  # type: ignore[attr-defined]
                return self._classes[base]
        return None

    def __contains__(self, item: Any) -> bool:
        return self._find(item) is not None

    def __getitem__(self, item: Any) -> type:
        found = self._find(item)
        if found is None:
            known = ", ".join(name for name, _ in self._classes.values())
            asked = item if isinstance(item, str) else getattr(item, "__name__", type(item).__name__)
            raise KeyError(f"no quantised class of {asked}; allowed: {known}.\n  Use register.")
        return found[1]

    def get(self, item: Any, default: Any = None) -> Any:
        """The quantised class, or ``default``."""
        return self[item] if item in self else default

    def get_key(self, item: Any) -> str:
        """The name of a class in configurations."""
        self[item]
        found = self._find(item)
        assert found is not None
        return found[0]

    def owner(self, name: str) -> tuple[type, ...]:
        """The plain classes of that name and their quantised class, for ``isinstance``."""
        quantised = self[name]
        return (quantised, *(cls for cls, (known, _) in self._classes.items() if known == name))

    def convert(self, module: nn.Module) -> nn.Module:
        """``module`` made quantised in place, with its class's quantisers; its parameters stay the same objects.

        Raises:
            ComputedWeightError (TypeError): for a parametrised weight, of ``QuantLinearConvBase``, which exchanges what
                ``module.weight`` is.
        """
        quantised, plain = self[module], type(module)
        if QuantLinearConvBase in quantised.__mro__ and is_parametrized(module, "weight"):
            refuse_computed("quantize", module, "weight")
        if not issubclass(quantised, plain):
            key = (quantised, plain)
            if key not in self._made:
                self._made[key] = type(f"Quant{plain.__name__}", key, {"__module__": __name__})
            quantised = self._made[key]
        module.__class__ = quantised
        found: Any = module
        device = next((p.device for p in module.parameters()), torch.device("cpu"))
        found._setup()
        for part in module.modules():
            if isinstance(part, TensorQuantizer):
                part.to(device).train(module.training)
        return call_children(module)


QuantModuleRegistry = _Registry()


def fold_weights(module: nn.Module) -> None:
    """Put each weight's quantised values into it, and switch its quantiser off; blocks and scales are forgotten."""
    put_folded(module, folded_weights(module))


@torch.no_grad()
def folded_weights(module: nn.Module) -> dict[str, Tensor]:
    """The quantised values of each weight that has a quantiser, by the name of the quantiser.

    Raises:
        AttributeError: for a quantiser without a weight beside it.
        ComputedWeightError (TypeError): for a weight that is no parameter.
    """
    found = {}
    for name, quantizer in list(module.named_children()):
        if not name.endswith("weight_quantizer") or not getattr(quantizer, "fake_quant", False):
            continue
        own = name.removesuffix("_quantizer")
        refuse_computed("fold_weight", module, own)
        weight = module._parameters.get(own)
        if weight is None:
            raise AttributeError(f"fold_weight: {name} without {own}; allowed: weights beside.")
        found[name] = quantizer(weight.float()).to(weight.dtype)
    return found


@torch.no_grad()
def put_folded(module: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Write what ``folded_weights`` found."""
    for name, value in values.items():
        module._parameters[name.removesuffix("_quantizer")].copy_(value)  # type: ignore[union-attr]
        for part in module.get_submodule(name).modules():
            if isinstance(part, TensorQuantizer):
                part.disable()
                for buffer in ("_pre_quant_scale", "_amax"):
                    if hasattr(part, buffer):
                        delattr(part, buffer)
