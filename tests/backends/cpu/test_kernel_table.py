"""The list of CPU kernels: what the page shows, that files exist, and which kernel each rule chooses."""

from __future__ import annotations

from support.traces import ROOT

from gemmsim.backends.cpu.kernel_table import kernel_rules, markdown

PAGE = ROOT / "docs" / "design" / "cpu_kernels.md"


def test_the_page_has_the_list_of_the_library():
    assert markdown() in PAGE.read_text(encoding="utf-8"), (
        f"{PAGE.name} has another table: replace it by what gemmsim.backends.cpu.kernel_table.markdown() returns."
    )


def test_every_kernel_has_a_name_a_file_and_a_fallback_that_follows():
    rules = kernel_rules()
    names = [rule.name for rule in rules]
    assert len(set(names)) == len(names) >= 30
    for i, rule in enumerate(rules):
        assert (ROOT / "cutlass_kernels" / "cpu" / rule.file).is_file(), rule.file
        assert rule.possible and names.index(rule.fallback) >= i, rule
        assert rule.details in ("", "lanes", "step")
