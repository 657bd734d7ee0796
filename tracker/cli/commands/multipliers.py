"""``tracker multipliers``, and the multipliers of torrents and users in other commands."""

import time
from typing import Annotated

import typer

from tracker.cli import terminal
from tracker.cli.commands import AsJson, Config, change_store, with_store
from tracker.cli.terminal import Moment, Row
from tracker.operations.audit import Change
from tracker.operations.snapshots import EVERYBODY
from tracker.store.schema.multipliers import MULTIPLIERS, Multiplier, multiplier_text, parse_end
from tracker.store.store import Store

Until = Annotated[
    str | None,
    typer.Option(
        metavar="WHEN",
        help="When the given multipliers end: 3d, 12h, 30m, or a date such as 2026-12-31T18:00 (UTC). Default: never.",
    ),
]


def given_multipliers(upload: str | None, download: str | None, until: str | None) -> dict[str, str]:
    """Those of MULTIPLIERS that are given, as stored, each with the end. Raises ClientError for an invalid end."""
    given = {
        name: text for name, text in zip(MULTIPLIERS, (upload, download), strict=True) if text is not None
    }
    if until and not given:
        raise typer.BadParameter("--until needs a multiplier")
    end = parse_end(until or "", time.time())
    return given if end is None else {name: f"{text} {end}" for name, text in given.items()}


def multiplier_columns(upload: Multiplier, download: Multiplier) -> Row:
    """Both multipliers with their ends, for the output of a command."""
    row: Row = {}
    for name, multiplier in (("upload", upload), ("download", download)):
        row[f"{name}_multiplier"] = f"{multiplier.factor:g}"
        row[f"{name}_multiplier_until"] = None if multiplier.until is None else Moment(multiplier.until)
    return row


def multipliers(
    upload: Annotated[
        str | None, typer.Option("--upload", help="Factor for everybody's upload, 0 to 1000; 1: none.")
    ] = None,
    download: Annotated[
        str | None, typer.Option("--download", help="Factor for everybody's download; 0: freeleech, 1: none.")
    ] = None,
    until: Until = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Show or set the multipliers for everybody. The best one counts: everybody's, the user's or the torrent's."""
    changed = given_multipliers(upload, download, until)

    async def set_given(store: Store, change: Change) -> None:
        await change.touch("multipliers", EVERYBODY)
        texts = (multiplier_text(each.factor, each.until) for each in await store.multipliers.get())
        both = dict(zip(MULTIPLIERS, texts, strict=True)) | changed
        await store.multipliers.set(*both.values())
        await show(store)

    async def show(store: Store) -> None:
        terminal.describe(multiplier_columns(*await store.multipliers.get()), as_json=as_json)

    if changed:
        change_store(config, "multipliers.set", set_given)
    else:
        with_store(config, show)
