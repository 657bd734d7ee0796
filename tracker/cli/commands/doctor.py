"""``tracker doctor``."""

import time

import typer

from tracker.cli.commands import AsJson, Config, with_store
from tracker.cli.terminal import say_json
from tracker.doctor import Finding
from tracker.doctor.checks import DoctorContext, run_checks
from tracker.names import printable
from tracker.settings.sources import load
from tracker.store.store import Store

_COLOURS = {"ok": typer.colors.GREEN, "warning": typer.colors.YELLOW, "wrong": typer.colors.RED}


def doctor(as_json: AsJson = False, config: Config = None) -> None:
    """Check the store and the settings; exit code 1 if something is wrong."""
    settings = load(config)

    async def work(store: Store) -> None:
        context = DoctorContext(store, settings, time.time)
        wrong = False
        async for finding in run_checks(context):
            _show(finding, as_json=as_json)
            wrong |= finding.level == "wrong"
        if wrong:
            raise typer.Exit(1)

    with_store(config, work)


def _show(finding: Finding, *, as_json: bool) -> None:
    if as_json:
        say_json(
            {
                "level": finding.level,
                "subject": finding.subject,
                "text": finding.text,
                "remedy": finding.remedy,
            }
        )
        return
    line = printable(str(finding))
    typer.echo(typer.style(line[:8], fg=_COLOURS[finding.level]) + line[8:])
