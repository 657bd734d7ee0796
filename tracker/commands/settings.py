"""``tracker settings``."""

from typing import Annotated

import typer

from tracker import settings_page
from tracker.commands import AsJson, Config
from tracker.settings_sources import load
from tracker.terminal import say, say_json


def show_settings(
    markdown: Annotated[bool, typer.Option("--markdown", help="All settings explained, as a page.")] = False,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Print the settings in force, secrets masked."""
    if markdown:
        typer.echo(settings_page.as_markdown(), nl=False)
        return
    for row in settings_page.describe(load(config)):
        if as_json:
            say_json({"name": row.name, "value": row.value})
        else:
            say(f"{row.name}={row.value}")
