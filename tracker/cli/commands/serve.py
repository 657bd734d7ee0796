"""``tracker serve``."""

import asyncio
import os
from typing import TYPE_CHECKING, Annotated

import typer

from tracker import logs, start, terminal
from tracker.commands import Config
from tracker.descriptors import raise_limit
from tracker.loops import new_event_loop
from tracker.settings import Settings
from tracker.settings_sources import load

if TYPE_CHECKING:
    from tracker.service import Banner

Workers = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        max=64,
        help="Processes that answer requests; with 2 or more the background work has one of its own.",
    ),
]


def serve(config: Config = None, workers: Workers = None) -> None:
    """Serve until SIGTERM or Ctrl-C; a second signal ends at once. SIGHUP has the settings read again."""

    def read() -> Settings:
        settings = load(config)
        if workers is None:
            return settings
        http = settings.http.model_copy(update={"workers": workers})
        return settings.model_copy(update={"http": http})

    settings = read()
    logs.configure(settings.log)

    def ready(banner: "Banner") -> None:
        typer.echo(terminal.banner_text(banner, os.getpid(), private=settings.users.private))

    raise_limit()  # the processes it starts inherit it
    with asyncio.Runner(loop_factory=new_event_loop()) as runner:
        runner.run(start.serve(settings, ready, read))
