"""Background coroutines of a block: they end with it, and an error of one ends it."""

import asyncio

import pytest

from tests.waiting import loop_turns
from tracker.errors import StartupError
from tracker.system import event_loop
from tracker.system.event_loop import running


async def test_a_failing_loop_ends_the_block_with_its_own_error() -> None:
    async def fail() -> None:
        raise StartupError("gone")

    with pytest.raises(StartupError, match="gone"):
        async with running(fail, asyncio.Event().wait):  # type: ignore[arg-type]  # its result does not matter
            await asyncio.Event().wait()


async def test_an_error_in_the_block_is_raised_unchanged() -> None:
    async def run() -> None:
        await asyncio.Event().wait()

    with pytest.raises(StartupError, match="no port"):
        async with running(run, run):
            raise StartupError("no port")


async def test_a_block_that_another_task_ends_outlasts_loops_that_end_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with pytest's fixtures: the task that ends the block is younger than the block."""
    monkeypatch.setattr(event_loop, "_CANCEL_AGAIN_SECONDS", 0)
    cancelled = 0

    async def reluctant() -> None:
        nonlocal cancelled
        while cancelled < 3:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled += 1

    block = running(reluctant)
    await asyncio.Task(block.__aenter__())
    await loop_turns(1)
    await asyncio.Task(block.__aexit__(None, None, None))
    assert cancelled == 3
