"""``tracker completion``."""

from enum import StrEnum
from typing import Annotated

import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined]  # no other place has it in all versions

from tracker.cli.commands import Config


class Shell(StrEnum):
    bash = "bash"
    zsh = "zsh"
    fish = "fish"


def completion(
    shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish")], config: Config = None
) -> None:
    """Print a script that completes `tracker` commands in a shell."""
    del config
    typer.echo(
        get_completion_script(prog_name="tracker", complete_var="_TRACKER_COMPLETE", shell=shell.value)
    )
