"""Mistakes in rules: the error says which rule, and keeps the type and the words that it has elsewhere."""

from __future__ import annotations

import re

import pytest
import torch
from typer.testing import CliRunner

import gemmsim as gs
from gemmsim.cli.app import app
from gemmsim.emulation import Config, ConfigError, Rule, convert, emulate

NET = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
X = torch.zeros(5, 8)
GOOD = ("0", ":e5m10")
#: The second rule of two; the type of the error; how it begins.
SECOND = {
    "spec": (("2", ":bf17"), gs.FormatError, "modules='2', kinds='*': accumulator 'bf17': unknown format 'bf17'"),
    "accumulator": (("2", ":chunked(0, bf16)"), gs.SpecError, "modules='2', kinds='*': chunked: n='0'"),
    "type": (("2", 3), ConfigError, "modules='2', kinds='*': spec 3 of type int"),
    "role": (("2", {"forward": ":bf16"}), ConfigError, "modules='2', kinds='*': formats of roles 'forward'"),
    "spec of a role": (
        {"kinds": "conv*", "formats": {"fprop": ":bf17"}},
        gs.FormatError,
        "modules='*', kinds='conv*': accumulator 'bf17'",
    ),
    "field of formats": (
        {"kinds": "linear", "formats": {"fprop": ":bf16", "quant": "e4m3"}},
        gs.SpecError,
        "modules='*', kinds='linear': QAffineFormats.from_dict: quant",
    ),
    "rows": (
        {"kinds": "softmax", "formats": "bf17"},
        gs.FormatError,
        "modules='*', kinds='softmax': unknown format 'bf17'",
    ),
    "steps of rows": (
        {"kinds": "gelu", "formats": {"nothing": "bf16"}},
        gs.SpecError,
        "modules='*', kinds='gelu': QGELUFormats.from_dict: nothing",
    ),
    "formats of rows for products": (
        ("2", gs.QSoftmaxFormats.of("bf16")),
        ConfigError,
        "modules='2', kinds='*': formats of products: QSoftmaxFormats",
    ),
    "kind": ({"kinds": "linaer", "formats": ":bf16"}, ConfigError, "kinds='linaer', which no product has"),
    "pattern": (("re:(", ":bf16"), ConfigError, "modules='re:(': missing )"),
    "field": ({"kind": "linear"}, ConfigError, "Rule.from_dict: kind"),
    "no rule": (3, ConfigError, "a rule 3; allowed"),
}
USES = {
    "config": Config.of,
    "emulate": emulate,
    "convert": lambda rules: convert(NET, rules),
    "dry run": lambda rules: gs.audit.dry_run(NET, X, rules),
    "dictionary": lambda rules: Config.from_dict({"rules": rules}),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize(("rule", "kind", "words"), SECOND.values(), ids=SECOND)
def test_the_error_says_which_rule(rule, kind, words, use):
    with pytest.raises(kind, match=re.escape(f"Rule 2 of 2: {words}")):
        use([GOOD, rule])


@pytest.mark.parametrize("command", ["emulate", "audit"])
def test_files(tmp_path, monkeypatch, command):
    yaml = pytest.importorskip("yaml")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("print('never')")
    for name, (rule, _, words) in SECOND.items():
        if name != "formats of rows for products":
            rule = list(rule) if isinstance(rule, tuple) else rule
            (tmp_path / "rules.yaml").write_text(yaml.safe_dump([list(GOOD), rule]))
            result = CliRunner().invoke(app, [command, "--config", "rules.yaml", "mine.py"])
            assert result.exit_code == 2 and f"error: Rule 2 of 2: {words}" in result.stderr, name


def test_errors_of_one_rule_and_of_none():
    with pytest.raises(gs.FormatError, match="^Rule: modules='0', kinds='linear': accumulator 'bf17'"):
        Rule("0", "linear", ":bf17")
    with pytest.raises(gs.FormatError, match="^accumulator 'bf17'"):
        emulate(":bf17")
    with pytest.raises(ConfigError, match="^formats of roles 'forward'"):
        emulate({"forward": ":bf16"})
    with pytest.raises(ConfigError) as found:
        Rule("x" * 5000, "*", 3)
    assert len(str(found.value)) < 1500
