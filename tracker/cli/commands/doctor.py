"""``tracker doctor``."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import asdict

import typer

from tracker.cli.commands import AsJson, load_settings
from tracker.cli.terminal import say_json
from tracker.doctor import Finding
from tracker.doctor.checks import check_without_store, run_checks
from tracker.errors import StartupError
from tracker.names import printable
from tracker.runtime.store import open_store
from tracker.settings.model import Settings
from tracker.system.masking import mask

_COLOURS = {"ok": typer.colors.GREEN, "warning": typer.colors.YELLOW, "wrong": typer.colors.RED}


def doctor(as_json: AsJson = False) -> None:
    """Check the store and the settings; exit code 1 if something is wrong."""
    settings = load_settings()

    async def run() -> bool:
        wrong = False
        async for finding in _findings(settings):
            if as_json:
                say_json(asdict(finding))
            else:
                line = printable(str(finding))
                typer.echo(typer.style(line[:8], fg=_COLOURS[finding.level]) + line[8:])
            wrong |= finding.level == "wrong"
        return wrong

    if asyncio.run(run()):
        raise typer.Exit(1)


async def _findings(settings: Settings) -> AsyncIterator[Finding]:
    """Without a store, those about the settings."""
    async with AsyncExitStack() as stack:
        try:
            store = await stack.enter_async_context(open_store(settings, checked=False))
        except StartupError as error:
            yield Finding("wrong", "store", mask(str(error)), "see docs/troubleshooting.md")
            for finding in check_without_store(settings, time.time()):
                yield finding
            return
        async for finding in run_checks(store, settings):
            yield finding
