"""``tracker settings``."""

from typing import Annotated

from typer import Option, echo

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
