"""``tracker serve``."""

import asyncio
import os
from collections.abc import Callable
from typing import Annotated

import typer

from tracker import logs, service, terminal
from tracker.commands import Config
from tracker.settings_sources import load

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
    """Serve until SIGTERM or Ctrl-C; a second signal ends at once."""
    settings = load(config)
    if workers is not None:
        http = settings.http.model_copy(update={"workers": workers})
        settings = settings.model_copy(update={"http": http})
    logs.configure(settings.log)

    def ready(banner: service.Banner) -> None:
        typer.echo(terminal.banner_text(banner, os.getpid(), private=settings.users.private))

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(service.serve(settings, ready))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415  # a tracker without it is slower and works
    except ImportError:
        return None
    return uvloop.new_event_loop
