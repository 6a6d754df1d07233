"""Every instruction set of this machine in turn."""

from __future__ import annotations

import pytest

from gemmsim.backends import cpu


@pytest.fixture(params=cpu.ISAS)
def isa(request):
    before = cpu.isa()
    try:
        cpu.set_isa(request.param)
    except cpu.LibraryError:
        pytest.skip(f"no {request.param} here")
    yield request.param
    cpu.set_isa(before)
