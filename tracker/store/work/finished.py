"""Entries of the log as values: one per finished claim."""

import json
from dataclasses import dataclass, field
from typing import Annotated

from tracker.store.schema.lenient_numbers import whole
from tracker.store.schema.record import Field
from tracker.store.work.log import LogEntry


@dataclass(frozen=True, slots=True)
class FinishedClaim:
    """A finished claim. Times are epoch seconds; 0 where unknown."""

    id: str
    at: float
    item: str
    claimant: str
    address: str
    user_agent: str
    version: str
    bytes: Annotated[dict[str, int], Field("Bytes by domain, as reported.")] = field(default_factory=dict)
    total_bytes: int = 0
    seconds: Annotated[int, Field("Verified seed time.")] = 0
    claimed_at: float = 0.0
    late: Annotated[bool, Field("Verified after the claim had lapsed.")] = False
    note: Annotated[str, Field("What the claimant sent as `id`.")] = ""


def finished_claim(entry: LogEntry) -> FinishedClaim:
    """An entry that was deleted before it was drained has no values."""
    row = entry.fields

    def text(name: str) -> str:
        return row.get(name, "")

    def number(name: str) -> int:
        return whole(text(name).encode())

    return FinishedClaim(
        id=entry.id,
        at=number("at") / 1000,
        item=text("item"),
        claimant=text("by"),
        address=text("ip"),
        user_agent=text("ua"),
        version=text("version"),
        bytes=_bytes_of(text("bytes")),
        total_bytes=number("total"),
        seconds=number("seconds"),
        claimed_at=number("claimed") / 1000,
        late=text("late") == "1",
        note=text("id"),
    )


def _bytes_of(text: str) -> dict[str, int]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    pairs = found.items() if isinstance(found, dict) else ()
    return {name: value for name, value in pairs if isinstance(value, int)}
