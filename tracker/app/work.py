"""Wires the claimants' listener of work distribution, in the process that serves the admin port."""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from tracker.core.work import WorkRequests
from tracker.core.work_figures import WorkFigures
from tracker.core.work_limits import WorkLimits
from tracker.frontends.work.server import serve_work
from tracker.runtime.context import RuntimeContext
from tracker.system.event_loop import running
from tracker.workers.rate_limits import share_limits


@asynccontextmanager
async def open_work(context: RuntimeContext, listening: Sequence[str]) -> AsyncIterator[tuple[str, ...]]:
    """Serves claimants if a setting says so, and yields the addresses. ``listening`` are the addresses where peers
    announce."""
    settings = context.live.current
    if not settings.work.listen:
        yield ()
        return
    limits = WorkLimits(context.live)

    async def update_limits() -> None:
        await share_limits(limits, context.store.rate_limits, time.time)

    work, figures = WorkRequests(context.store, time.time), WorkFigures(context.store, time.time)
    async with (
        running(update_limits),
        serve_work(work, figures, settings.work, settings.http, limits, listening=listening) as addresses,
    ):
        yield addresses
