"""The start of a tracker, in the order that has it answer soonest.

The private store comes first, for it may have much to load. While it does so everything else is imported, which takes
longer than all that is left to do then.
"""

import asyncio
import os
import resource
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import structlog

from tracker.reloading import Reload
from tracker.settings import Settings
from tracker.store_server import open_server

if TYPE_CHECKING:
    from tracker.service import Banner

STOP_SECONDS = 10
"""After a signal, and the delay that the settings ask for, everything has ended by then, one way or another."""
_LAST_SECONDS = 3.0
"""Of these, what the private store gets for its end."""

log = structlog.get_logger("tracker")


class Stop(asyncio.Event):
    """Set by the first signal."""

    deadline = 0.0
    """When the process has to be gone, by the loop's clock."""
    opening: asyncio.Task[Any] | None = None
    """What waits for the private store, and need not wait any longer then."""


async def serve(
    settings: Settings, ready: "Callable[[Banner], None]", read_again: Callable[[], Settings]
) -> None:
    """Serves until SIGTERM or SIGINT; raises StartupError when it cannot start. On SIGHUP it goes by what ``read_again``
    gives, which raises SettingsError."""
    _write_no_cores()
    loop, stop = asyncio.get_running_loop(), Stop()
    reload = Reload(read_again)
    _heed_signals(stop, STOP_SECONDS + settings.http.stop_delay_seconds, reload)
    async with AsyncExitStack() as stack:
        stop.opening = task = asyncio.current_task()
        try:
            server = await stack.enter_async_context(open_server(settings, _import_service))
        except asyncio.CancelledError:
            if task is None or not stop.is_set():
                raise
            task.uncancel()
            log.info("stopped before the private store was ready")
            return
        finally:
            stop.opening = None
        from tracker import service  # noqa: PLC0415  # imported by now

        await service.serve(settings, server, stop, ready, reload)
        if server.private is not None:
            await server.private.compact(stop.deadline - _LAST_SECONDS - loop.time())
    log.info("stopped")


def _write_no_cores() -> None:
    """A core file would hold passwords and passkeys. Children inherit this; who wants one raises the limit (prlimit)."""
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, most))


def _import_service() -> None:
    import tracker.service  # noqa: F401, PLC0415


def _heed_signals(stop: Stop, seconds: float, reload: Reload) -> None:
    """The first SIGTERM or SIGINT stops gracefully, for at most so many ``seconds``; the second at once. SIGHUP reloads."""
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
        if in_terminal and not os.isatty(0):  # its window was closed: nobody asked for anything
            on_signal()
        else:
            reload.asked.set()

    loop.add_signal_handler(signal.SIGHUP, on_hangup)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})  # one that came before now is heard
