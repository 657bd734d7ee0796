"""``tracker multipliers``, and the multipliers of torrents and users in other commands."""

import time
from typing import Annotated

import typer

from tracker.cli import terminal
from tracker.cli.commands import AsJson, Config, change_store, with_store
from tracker.cli.terminal import Moment, Row
from tracker.errors import ClientError
from tracker.operations.audit import Change
from tracker.operations.snapshots import EVERYBODY
from tracker.store.schema.multipliers import (
    MULTIPLIERS,
    RuleChange,
    Rules,
    multipliers_of,
    parse_end,
    refuse_ended,
    rule_change,
    split_ends,
    with_end,
)
from tracker.store.store import Store

Until = Annotated[
    str | None,
    typer.Option(
        metavar="WHEN",
        help="When the given multipliers end: 3d, 12h, 30m, or a date such as 2026-12-31T18:00 (UTC). Default: never.",
    ),
]


Rule = Annotated[
    str | None,
    typer.Option("--rule", metavar="NAME", help="Set only the rule of this name; the others stay."),
]
RemoveRule = Annotated[
    str | None, typer.Option("--remove-rule", metavar="NAME", help="Remove the rule of this name.")
]


class _Shown(str):
    """Several rules: as stored in JSON, with readable ends in text."""

    __slots__ = ()

    def __str__(self) -> str:
        rules = multipliers_of(self[:])
        return ", ".join(
            " ".join(
                [f"{rule.factor:g}", *([f"until {Moment(rule.until)}"] if rule.until else []), rule.name]
            ).rstrip()
            for rule in rules
        )


def given_multipliers(upload: str | None, download: str | None, until: str | None) -> dict[str, str]:
    """Those of MULTIPLIERS that are given, as stored, each with the end. Raises ClientError for an invalid end, and for
    one in the past."""
    given = {
        name: text for name, text in zip(MULTIPLIERS, (upload, download), strict=True) if text is not None
    }
    if until and not given:
        raise typer.BadParameter("--until needs a multiplier")
    end = parse_end(until or "", time.time())
    texts = {name: with_end(text, end) for name, text in given.items()}
    refuse_ended(texts.values(), time.time())
    return texts


def given_rules(
    upload: str | None, download: str | None, until: str | None, rule: str | None, remove_rule: str | None
) -> tuple[dict[str, str], list[RuleChange]]:
    """(those of MULTIPLIERS to replace, as stored; rules to change). Raises ClientError as ``given_multipliers``
    does."""
    now = time.time()
    changes = [] if remove_rule is None else [RuleChange(int(now), remove_rule)]
    if rule is None:
        return given_multipliers(upload, download, until), changes
    return {}, [*changes, rule_change(now, rule, upload, download, parse_end(until or "", now))]


def check_removed(changed: bool) -> None:
    """Raises ClientError."""
    if not changed:
        raise ClientError("there is no rule of this name")


def multiplier_columns(upload: Rules, download: Rules) -> Row:
    """Both multipliers with their ends, for the output of a command."""
    row: Row = {}
    for name, value in split_ends(upload, download).items():
        if name in MULTIPLIERS:
            row[name] = _Shown(value) if isinstance(value, str) else f"{value:g}"
        else:
            row[name] = Moment(value) if isinstance(value, int) else None
    return row


def multipliers(
    upload: Annotated[
        str | None, typer.Option("--upload", help="Factor for everybody's upload, 0 to 1000; 1: none.")
    ] = None,
    download: Annotated[
        str | None, typer.Option("--download", help="Factor for everybody's download; 0: freeleech, 1: none.")
    ] = None,
    until: Until = None,
    rule: Rule = None,
    remove_rule: RemoveRule = None,
    as_json: AsJson = False,
    config: Config = None,
) -> None:
    """Show or set the multipliers for everybody. The best one counts: everybody's, the user's or the torrent's."""
    fields, changes = given_rules(upload, download, until, rule, remove_rule)

    async def set_given(store: Store, change: Change) -> None:
        await change.touch("multipliers", EVERYBODY)
        if fields:
            await store.multipliers.set(*map(fields.get, MULTIPLIERS))
        for each in changes:
            check_removed(await store.multipliers.change_rule(each))
        await show(store)

    async def show(store: Store) -> None:
        terminal.describe(multiplier_columns(*await store.multipliers.get()), as_json=as_json)

    if fields or changes:
        change_store(config, "multipliers.set", set_given)
    else:
        with_store(config, show)
