"""``tracker multipliers``, and the multipliers of torrents and users in other commands."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from typer import BadParameter, Option

from tracker.cli import terminal
from tracker.cli.commands import AsJson, change_store, with_store
from tracker.cli.terminal import Moment, Value
from tracker.errors import ClientError
from tracker.store.schema.multipliers import (
    MULTIPLIERS,
    RuleChange,
    multipliers_of,
    parse_end,
    refuse_ended,
    rule_change,
    split_ends,
    with_end,
)
from tracker.store.store import Store

if TYPE_CHECKING:
    from tracker.operations.audit import Change

Until = Annotated[
    str | None,
    Option(
        metavar="WHEN",
        help="When the given multipliers end: 3d, 12h, 30m, or a date such as 2026-12-31T18:00 (UTC). Default: never.",
    ),
]


Rule = Annotated[str | None, Option("--rule", metavar="NAME", help="Set only the rule of this name; the others stay.")]
RemoveRule = Annotated[str | None, Option("--remove-rule", metavar="NAME", help="Remove the rule of this name.")]


class _Shown(str):
    """Several rules: as stored in JSON, with readable ends in text."""

    __slots__ = ()

    def __str__(self) -> str:
        rules = multipliers_of(self[:])
        return ", ".join(
            " ".join([f"{rule.factor:g}", *([f"until {Moment(rule.until)}"] if rule.until else []), rule.name]).rstrip()
            for rule in rules
        )


def given_multipliers(given: Mapping[str, Any], until: str | None) -> dict[str, Any]:
    """The fields that are given, those of MULTIPLIERS as stored, each with the end. Raises ClientError for an invalid
    end, and for one in the past."""
    multipliers = {name: given[name] for name in MULTIPLIERS if name in given}
    if until and not multipliers:
        raise BadParameter("--until needs a multiplier")
    end = parse_end(until or "", time.time())
    texts = {name: with_end(text, end) for name, text in multipliers.items()}
    refuse_ended(texts.values(), time.time())
    return {**given, **texts}


def given_rules(
    given: Mapping[str, Any], until: str | None, rule: str | None, remove_rule: str | None
) -> tuple[dict[str, Any], list[RuleChange]]:
    """(the fields to set, as of ``given_multipliers``; rules to change). Raises ClientError as that does."""
    now = time.time()
    changes = [] if remove_rule is None else [RuleChange(int(now), remove_rule)]
    if rule is None:
        return given_multipliers(given, until), changes
    others = {name: value for name, value in given.items() if name not in MULTIPLIERS}
    upload, download = map(given.get, MULTIPLIERS)
    return others, [*changes, rule_change(now, rule, upload, download, parse_end(until or "", now))]


def check_removed(changed: bool) -> None:
    """Raises ClientError."""
    if not changed:
        raise ClientError("there is no rule of this name")


def shown_multiplier(name: str, value: Any) -> Value:
    """A multiplier or its end, as ``split_ends`` makes them, for the output of a command."""
    if name in MULTIPLIERS:
        return _Shown(value) if isinstance(value, str) else f"{value:g}"
    return Moment(value) if isinstance(value, int) else None


def multipliers(
    upload: Annotated[str | None, Option("--upload", help="Factor for all users' upload, 0 to 1000; 1: none.")] = None,
    download: Annotated[
        str | None, Option("--download", help="Factor for all users' download; 0: freeleech, 1: none.")
    ] = None,
    until: Until = None,
    rule: Rule = None,
    remove_rule: RemoveRule = None,
    as_json: AsJson = False,
) -> None:
    """Show or set the multipliers for all users. The best one counts: that for all users, the user's or the
    torrent's."""
    values = dict(zip(MULTIPLIERS, (upload, download), strict=True))
    given = {name: value for name, value in values.items() if value is not None}
    fields, changes = given_rules(given, until, rule, remove_rule)

    async def set_given(store: Store, change: "Change") -> None:
        from tracker.operations.snapshots import ALL_USERS  # noqa: PLC0415

        await change.touch("multipliers", ALL_USERS)
        if fields:
            await store.multipliers.set(*map(fields.get, MULTIPLIERS))
        for each in changes:
            check_removed(await store.multipliers.change_rule(each))
        await show(store)

    async def show(store: Store) -> None:
        row = split_ends(*await store.multipliers.get())
        terminal.describe({name: shown_multiplier(name, row[name]) for name in row}, as_json=as_json)

    if fields or changes:
        change_store("multipliers.set", set_given)
    else:
        with_store(show)
