"""Starts a tracker, in the order that takes the least time until it serves. The private store starts first, because it
may have much data to load. Meanwhile everything else is imported: that takes longer than all later steps."""

import asyncio
import os
import resource
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tracker.settings.model import Settings
from tracker.settings.reload import Reload
from tracker.system.logger import Logger
from tracker.valkey.server import open_server

if TYPE_CHECKING:
    from tracker.app.service import Banner

STOP_SECONDS = 10
"""Maximum time from a signal, plus the delay in the settings, to the end of the process."""
_STORE_STOP_SECONDS = 3.0
"""The part of STOP_SECONDS that is kept for the end of the private store."""

log = Logger("tracker")


class ShutdownEvent(asyncio.Event):
    """Set by the first signal."""

    deadline = 0.0
    """When the process must have ended, by the loop's clock."""
    opening: asyncio.Task[Any] | None = None
    """The task that starts the tracker; None once it serves. A signal cancels it."""


async def serve(settings: Settings, ready: "Callable[[Banner], None]", read_settings: Callable[[], Settings]) -> None:
    """Serves until SIGTERM or SIGINT; raises StartupError when it cannot start. SIGHUP calls ``read_settings``, which
    may raise SettingsError, and applies the result."""
    # A core file would contain passwords and passkeys. Children inherit the limit; `prlimit` raises it if needed.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    loop, stop = asyncio.get_running_loop(), ShutdownEvent()
    reload = Reload(read_settings)
    _install_signal_handlers(stop, STOP_SECONDS + settings.http.stop_delay_seconds, reload)
    async with AsyncExitStack() as stack:
        stop.opening = task = asyncio.current_task()
        message = "stopped before the private store was ready"

        def serving(banner: "Banner") -> None:
            stop.opening = None
            ready(banner)

        try:
            server = await stack.enter_async_context(
                open_server(settings, partial(import_module, "tracker.app.service"))
            )
            from tracker.app import service  # noqa: PLC0415

            message = "stopped before the tracker served"
            await service.serve(settings, server, stop, serving, reload)
        except asyncio.CancelledError:
            if task is None or not stop.is_set():
                raise
            task.uncancel()
            log.info(message)
            return
        finally:
            stop.opening = None
        if server.private is not None:
            await server.private.compact(stop.deadline - _STORE_STOP_SECONDS - loop.time())
    log.info("stopped")


def _install_signal_handlers(stop: ShutdownEvent, seconds: float, reload: Reload) -> None:
    """The first SIGTERM or SIGINT stops gracefully within ``seconds``, the second at once. SIGHUP reloads settings."""
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if stop.is_set():
            os._exit(130)
        stop.deadline = loop.time() + seconds
        loop.call_at(stop.deadline, lambda: os._exit(1))
        stop.set()
        if stop.opening is not None:
            stop.opening.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    in_terminal = os.isatty(0)

    def on_hangup() -> None:
        if in_terminal and not os.isatty(0):  # the terminal was closed: this is no request to reload
            on_signal()
        else:
            reload.requested.set()

    loop.add_signal_handler(signal.SIGHUP, on_hangup)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})  # delivers one that came before now
