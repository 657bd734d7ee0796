"""``tracker doctor``."""

import time
from dataclasses import asdict

import typer

from tracker.cli.commands import AsJson, config_file
from tracker.cli.terminal import say_json
from tracker.doctor import Finding
from tracker.doctor.checks import DoctorContext, run_checks
from tracker.names import printable
from tracker.settings.sources import load
from tracker.store.store import Store

_COLOURS = {"ok": typer.colors.GREEN, "warning": typer.colors.YELLOW, "wrong": typer.colors.RED}


async def doctor(store: Store, as_json: AsJson = False) -> None:
    """Check the store and the settings; exit code 1 if something is wrong."""
    context = DoctorContext(store, load(config_file()), time.time)
    wrong = False
    async for finding in run_checks(context):
        _show(finding, as_json=as_json)
        wrong |= finding.level == "wrong"
    if wrong:
        raise typer.Exit(1)


def _show(finding: Finding, *, as_json: bool) -> None:
    if as_json:
        say_json(asdict(finding))
        return
    line = printable(str(finding))
    typer.echo(typer.style(line[:8], fg=_COLOURS[finding.level]) + line[8:])
