"""``tracker settings`` and ``tracker completion``."""

from typing import Annotated, Literal

from typer import Argument, Option, echo
from typer.completion import get_completion_script  # type: ignore[attr-defined]  # no other place has it in all versions

from tracker.cli.commands import AsJson, config_file
from tracker.cli.terminal import show
from tracker.settings import reference
from tracker.settings.sources import load


def show_settings(
    markdown: Annotated[bool, Option("--markdown", help="Print a page that explains all settings.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the current settings, with secrets masked."""
    if markdown:
        echo(reference.as_markdown(), nl=False)
        return
    for name, value in reference.values(load(config_file.get())).items():
        show({"name": name, "value": value}, f"{name}={value}", as_json=as_json)


def completion(shell: Annotated[Literal["bash", "zsh", "fish"], Argument(metavar="bash|zsh|fish")]) -> None:
    """Print a script that completes `tracker` commands in a shell."""
    echo(get_completion_script(prog_name="tracker", complete_var="_TRACKER_COMPLETE", shell=shell))
