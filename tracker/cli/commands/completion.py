"""``tracker completion``."""

from typing import Annotated, Literal

import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined]  # no other place has it in all versions


def completion(shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(metavar="bash|zsh|fish")]) -> None:
    """Print a script that completes `tracker` commands in a shell."""
    typer.echo(get_completion_script(prog_name="tracker", complete_var="_TRACKER_COMPLETE", shell=shell))
