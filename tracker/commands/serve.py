"""``tracker serve``."""

import asyncio
import os
from collections.abc import Callable

import typer

from tracker import logs, service, terminal
from tracker.commands import Config
from tracker.settings_sources import load


def serve(config: Config = None) -> None:
    """Serve until SIGTERM or Ctrl-C; a second signal ends at once."""
    settings = load(config)
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
