"""The key table: every key in the store, as docs/keys.md lists them, and the row of a key. A test compares a store
with it."""

import re
from functools import cache
from pathlib import Path

from tracker.errors import StartupError
from tracker.store.schema.keys import BOARDS, SCOPES, KeySpec


def _rows() -> tuple[KeySpec, ...]:
    """Of docs/keys.md: inside the package if installed from a wheel, beside it in a checkout."""
    package = Path(__file__).resolve().parents[3]
    for path in (package / "keys.md", package.parent / "docs" / "keys.md"):
        if path.is_file():
            lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("| `t:")]
            cells = [line.removeprefix("| ").removesuffix(" |").split(" | ") for line in lines]
            return tuple(KeySpec(pattern.strip("`"), *others) for pattern, *others in cells)
    raise StartupError("keys.md is missing from this installation: reinstall it")


KEYS = _rows()
WORK = tuple(row for row in KEYS if row.pattern.startswith(("t:w:", "t:work_")) or row.pattern == "t:w")
"""The rows of work distribution."""

_PLACE = rf"countries\.[^./]+(?:\.(?:{'|'.join(SCOPES[1:])})\.[^./]+)?"
_HASH = "[0-9a-f]{40}"
_PLACEHOLDERS = {
    "ih": _HASH,
    "pid": _HASH,
    "tid": "[1-9][0-9]*",
    "uid": "[1-9][0-9]*",
    "deadline": "[0-9]+",
    "array": "[sl][46w]",
    "set": "active|complete|incomplete|hnr",
    "process": "[0-9a-f]{16}",
    "endpoint": "[0-9a-f]{12}|[0-9a-f]{36}",
    "metric": rf"{_PLACE}\.users|torrents\.{_HASH}(?:\.{_PLACE})?\.users",
    "month": "[0-9]{4}-[0-9]{2}",
    "span": "[0-9]{4}-(?:W?[0-9]{2})",
    "seen": r"[0-9]+(?:\.[0-9]+){3}|[0-9a-f]{0,4}:[0-9a-f:]+(?:/[0-9]+)?|[0-9a-f]{32}",
    "scope": "|".join(BOARDS),
    "period": "all|[0-9]{4}-[0-9]{2}",
    "precision": "1|5|60|300|900|3600|7200|18000|28800|86400",
    "minute": "[0-9]+",
    "window": "[0-9]+",
    "id": "[1-9][0-9]*",
    "queue": "[a-z][a-z0-9_]*",
    "status": "pending|running|retry|completed|failed",
    "prefix": ".{1,20}",
    "passkey": "[0-9A-Za-z_-]{16,64}",
    "address": "[0-9.]+(?:/24)?|[0-9a-f:]+(?:/48)?",
    "kind": "torrents|outbox|dht|shard|trackers|samples|webhook|layout|site",
    "node": "[-.0-9A-Za-z]{1,64}",
    "family": "[46]",
    "name": ".+",
    "reason": ".+",
    "outcome": "joins|failures",
    "token": "[0-9a-f]{12}",
    "digest": "[0-9a-f]{64}",
    "p": "(?!blocked(?![-_0-9A-Za-z]))[-_0-9A-Za-z]{1,30}",
    "c": "[-_0-9A-Za-z]{1,30}",
    "todo": "todo(?::secondary|:redo)?",
    "board": "downloader_(?:count|bytes|seconds)",
    "counter": "leechers|seeders|announces|scrapes|requests|credit_cut|reaped|repairs|forgotten|"
    "outbox_dropped|tally_dropped|software_dropped|unique_skipped",
    "ranking": "leechers|seeders|snatches|score",
    "total": "uploaded|downloaded|ratio|disabled|blocked",
    "value": "added|active|size|disabled|pending|private",
}
_ANY_WORD = "[^:]+"


def _pattern(row: KeySpec) -> re.Pattern[str]:
    """Matches the row's keys, without the prefix."""
    parts = re.split("<([a-z_]+)>", row.pattern.removeprefix("t:"))
    made = [
        f"(?:{_PLACEHOLDERS.get(part, _ANY_WORD)})" if number % 2 else re.escape(part)
        for number, part in enumerate(parts)
    ]
    return re.compile("".join(made), re.DOTALL)


_ROWS = sorted(
    ((row.pattern.removeprefix("t:").partition("<")[0], _pattern(row), row) for row in KEYS),
    key=lambda each: -len(each[0]),
)
"""Rows with the longest literal beginning first: `t:stats:failures` before `t:stats:<counter>`."""


def row_of(name: str) -> KeySpec | None:
    """Returns the row of a key without its prefix; None for a foreign key."""
    for row, pattern in _rows_by_first(name[:1]):
        if pattern.fullmatch(name):
            return row
    return None


@cache
def _rows_by_first(letter: str) -> list[tuple[KeySpec, re.Pattern[str]]]:
    return [(row, pattern) for head, pattern, row in _ROWS if head[:1] in ("", letter)]
