"""``tracker multipliers``, and the multipliers of torrents and users in other commands."""

import time
from typing import Annotated

import typer

from tracker.cli import terminal
from tracker.cli.commands import AsJson, Config, with_store
from tracker.cli.terminal import Moment, Row
from tracker.store.schema.multipliers import Multiplier, multiplier_text, parse_end
from tracker.store.store import Store

Until = Annotated[
    str | None,
    typer.Option(
        metavar="WHEN",
        help="When the given multipliers end: 3d, 12h, 30m, or a date such as 2026-12-31T18:00 (UTC). Default: never.",
    ),
]


def with_end(multiplier: str | None, until: str | None) -> str | None:
    """A multiplier as stored, with its end; None for none. Raises ClientError for an invalid end."""
    end = parse_end(until or "", time.time())
    return multiplier if multiplier is None or end is None else f"{multiplier} {end}"


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
    if until and upload is None and download is None:
        raise typer.BadParameter("--until needs --upload or --download")

    async def work(store: Store) -> None:
        current = await store.multipliers.get()
        if upload is not None or download is not None:
            texts = [multiplier_text(each.factor, each.until) for each in current]
            given = [with_end(text, until) for text in (upload, download)]
            await store.multipliers.set(*(new or old for new, old in zip(given, texts, strict=True)))
            current = await store.multipliers.get()
        terminal.describe(multiplier_columns(*current), as_json=as_json)

    with_store(config, work)
