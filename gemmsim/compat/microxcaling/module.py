"""What microxcaling's modules have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gemmsim.nn import Emulated

from .specs import MxSpecs, apply_mx_specs, mx_assert_test

__all__ = ["Specified"]


class Specified(Emulated):
    """Settings and name of a module; without settings (``mx_none``) the module is PyTorch's."""

    mx_none: bool
    mx_specs: MxSpecs
    name: str | None

    def _specify(self, mx_specs: Mapping[str, Any] | None, name: str | None) -> None:
        self.apply_mx_specs(mx_specs)
        self.name = name

    def apply_mx_specs(self, mx_specs: Mapping[str, Any] | None) -> None:
        """Other settings.

        Raises:
            KeyError: for an unknown key.
        """
        mx_assert_test(mx_specs)
        self.mx_none = mx_specs is None
        self.mx_specs = apply_mx_specs(mx_specs)

    def append_name(self, postfix: str) -> None:
        """``postfix`` after the name."""
        self.name = (self.name or "") + postfix
