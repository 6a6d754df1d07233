"""Modules whose input is quantised, made with their quantiser."""

from __future__ import annotations

from typing import Any

from .quant_module import QuantInputBase

__all__ = ["MadeInput"]


class MadeInput(QuantInputBase):
    """The plain class's arguments, and ``quant_desc_input``: the input quantiser's description, 8 bits by default."""

    def __init__(self, *args: Any, quant_desc_input: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if quant_desc_input is not None:
            self.default_quant_desc_input = quant_desc_input
        self._setup()
