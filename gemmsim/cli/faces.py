"""How commands look and read their words: lists of commands that are not cut, programs with options of their own."""

from __future__ import annotations

import shlex
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

__all__ = ["HELP", "Group", "Program", "Run", "Spec"]

#: Settings of every command: both ways to ask for help.
HELP = {"help_option_names": ["-h", "--help"]}


#: What the option of a spec is called elsewhere: an error about such an option names the right one.
_OTHERS = {f"--{name}" for name in ("acc", "accs", "accum", "accumulator", "arith", "fmt", "format", "formats", "mac")}
_OTHERS |= {f"--{name}" for name in ("precision", "recipe", "spce", "specs", "sepc")}


class Group(TyperGroup):
    """Commands listed with the whole first paragraph of their help, and help where none is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """No words mean --help, exit code 0."""
        return super().parse_args(ctx, args or ["--help"])

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """One entry for each command, on as many lines as it takes."""
        rows = []
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                rows.append((name, " ".join((command.help or "").partition("\n\n")[0].split())))
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


class Spec(TyperCommand):
    """A command that takes a spec, or two, and says so where an option is called as it is elsewhere."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As they are.

        Raises:
            BadParameter: for another name of ``--spec``.
        """
        known = {name for option in self.params for name in option.opts}
        by_name = "--spec" in known
        ours = args[: args.index("--")] if "--" in args else args
        for word, behind in () if ctx.resilient_parsing else zip(ours, [*ours[1:], ""], strict=False):
            name, _, value = word.partition("=")
            if name not in known and (name in _OTHERS or name == "--spec"):
                meant = shlex.join(["--spec", value or behind]) if value or behind else "--spec"
                do = f"Try {meant}" if by_name else "Give the specs without a name."
                allowed = "--spec" if by_name else "SPEC_A SPEC_B"
                raise typer.BadParameter(f"no option {name}; allowed: {allowed}.\n  {do}", ctx=ctx)
        return super().parse_args(ctx, args)


class Program(Spec):
    """A command that runs a program: what follows the program's name is the program's own."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The options before the program are ours."""
        valued = {name for option in self.params if not getattr(option, "is_flag", True) for name in option.opts}
        return super().parse_args(ctx, _closed(args, valued | _OTHERS))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """What stands behind the command's name in the line of usage."""
        return ["[OPTIONS]", "(SCRIPT | -m MODULE) [ARGUMENTS]..."]


def _closed(args: list[str], valued: set[str]) -> list[str]:
    """``args`` with the word that ends options behind ours."""
    at = 0
    while at < len(args):
        word = args[at]
        if word == "--" or args[at:] == ["-m"]:
            return list(args)
        if word.startswith("-m") or not word.startswith("-") or word == "-":
            end = at + (2 if word == "-m" else 1 if word.startswith("-m") else 0)
            return [*args[:end], "--", *args[end:]]
        at += 2 if word in valued else 1
    return list(args)


class Run(TyperCommand):
    """``study run``, whose further options are those of the kind it names: --help shows them."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """What is no option of every run is left to the kind."""
        ctx.meta["gemmsim.words"] = tuple(args)
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """What stands behind the command's name in the line of usage."""
        return ["NAME|KIND", "[OPTIONS]", "[PARAMETERS]..."]

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """The parameters of the kind that was named."""
        words = ctx.meta.get("gemmsim.words", ())
        if all(word.startswith("-") for word in words):
            return
        from .study_options import parameters_of

        kind, rows = parameters_of(words)
        if rows:
            with formatter.section(f"Parameters of {kind}"):
                formatter.write_dl(rows)
