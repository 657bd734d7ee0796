"""``tracker doctor``."""

import time

import typer

from tracker import doctor
from tracker.commands import AsJson, Config, with_stores
from tracker.settings_sources import load
from tracker.stores import Stores
from tracker.terminal import printable, say_json

_COLOURS = {"ok": typer.colors.GREEN, "warning": typer.colors.YELLOW, "wrong": typer.colors.RED}


def look_over(as_json: AsJson = False, config: Config = None) -> None:
    """Look the store and the settings over; exit code 1 when something is wrong."""
    settings = load(config)

    async def work(stores: Stores) -> None:
        patient = doctor.Patient(stores.connection, stores.keys, stores.counters, settings, time.time)
        wrong = False
        async for finding in doctor.examine(patient):
            _show(finding, as_json=as_json)
            wrong |= finding.level == "wrong"
        if wrong:
            raise typer.Exit(1)

    with_stores(config, work)


def _show(finding: doctor.Finding, *, as_json: bool) -> None:
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
