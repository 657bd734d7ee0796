"""``tracker serve``."""

import asyncio
import os
from typing import TYPE_CHECKING, Annotated

from typer import Option, echo

from tracker.app import start
from tracker.cli import terminal
from tracker.cli.commands import config_file
from tracker.settings.model import Settings
from tracker.settings.sources import load
from tracker.system import logs
from tracker.system.event_loop import new_event_loop
from tracker.system.resources import raise_limit

if TYPE_CHECKING:
    from tracker.app.service import Banner


def serve(
    workers: Annotated[
        int | None,
        Option(
            metavar="N",
            min=1,
            max=64,
            help="Processes that answer requests. With 2 or more, background work has its own process.",
        ),
    ] = None,
    fail_fast: Annotated[
        bool, Option("--fail-fast", help="End if the store is not ready within a second, instead of waiting.")
    ] = False,
) -> None:
    """Serve until SIGTERM or Ctrl-C; a second signal stops at once. SIGHUP reloads settings."""

    def read() -> Settings:
        settings = load(config_file.get())
        if fail_fast:
            redis = settings.redis.model_copy(update={"start_wait_seconds": 1})
            settings = settings.model_copy(update={"redis": redis})
        if workers is None:
            return settings
        http = settings.http.model_copy(update={"workers": workers})
        return settings.model_copy(update={"http": http})

    settings = read()
    logs.configure(settings.log.level, settings.log.format)

    def ready(banner: "Banner") -> None:
        why_no_udp = settings.why_no_udp(banner.addresses)
        if not (why_no_udp or banner.udp) and settings.udp_addresses(banner.addresses):
            why_no_udp = "its port is in use"
        echo(terminal.banner_text(banner, os.getpid(), settings, why_no_udp))

    raise_limit()  # the processes it starts inherit it
    with asyncio.Runner(loop_factory=new_event_loop()) as runner:
        runner.run(start.serve(settings, ready, read))
