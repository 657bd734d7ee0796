"""Loads each command when it is called: importing all of them takes a second. ``tracker completion``."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any, ClassVar, Literal

import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined]  # no other place has it in all versions
from typer.core import TyperCommand

from tracker.cli.commands import Commands, runnable


@dataclass(frozen=True, slots=True)
class Entry:
    """``where`` is ``module:name`` of a function or group under tracker.cli.commands; ``about`` is its line in the
    list."""

    where: str
    about: str

    def load(self, name: str) -> Any:
        module, _, attribute = self.where.partition(":")
        found = getattr(import_module(f"tracker.cli.commands.{module}"), attribute)
        if isinstance(found, typer.Typer):
            group = typer.main.get_group(found)
            group.name = name
            return group
        single = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        single.command(name)(runnable(found))
        return typer.main.get_command(single)


Sections = Mapping[str, Mapping[str, Entry]]


class Menu(Commands):
    """Commands in sections. Listing them, for --help or for shell completion, imports none of them."""

    sections: ClassVar[Sections] = {}

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self._entries = {name: entry for part in self.sections.values() for name, entry in part.items()}
        for name, entry in self._entries.items():
            self.add_command(TyperCommand(name, help=entry.about, short_help=entry.about))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        entry = self._entries.get(args[0])
        if entry is None:
            return super().resolve_command(ctx, args)
        return args[0], entry.load(args[0]), args[1:]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        del ctx
        width = max(map(len, self._entries))
        for title, entries in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), entry.about) for name, entry in entries.items()])


def completion(shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(metavar="bash|zsh|fish")]) -> None:
    """Print a script that completes `tracker` commands in a shell."""
    typer.echo(get_completion_script(prog_name="tracker", complete_var="_TRACKER_COMPLETE", shell=shell))
