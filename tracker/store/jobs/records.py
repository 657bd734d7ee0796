"""A job: what it is made of, and how its payload is compared."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

PROCESS_TORRENT = "process_torrent"
"""The queue whose jobs score one torrent each: ``{"torrent_id": "7"}``."""
REPROCESS = "reprocess"
"""The queue whose jobs enqueue many of those, by a filter."""
REPROCESS_RETRIES = 10
"""A walk through many torrents may well outlive a few trackers; it goes on where it was."""
SWEEP = "sweep"
"""The queue whose jobs visit every swarm at once: ``{}``."""
STATUSES = ("pending", "running", "retry", "completed", "failed")
FINISHED = ("completed", "failed")
MOST_PRIORITY = 10
"""Priorities go from minus this to this."""
MAX_PAYLOAD_BYTES = 65_536
MAX_ERROR = 1000
_QUEUE = re.compile(r"[a-z][a-z0-9_]{0,63}")
_EXACT = 2**53

Outcome = Literal["completed", "failed", "fatal", "returned"]
"""How a run ended. ``failed`` is tried again as long as there are retries, ``fatal`` never; ``returned`` is no run."""


@dataclass(frozen=True, slots=True)
class JobLimits:
    """How long jobs are kept, leased and tried again, and how many there may be."""

    max_retries: int = 2
    keep_seconds: float = 86_400
    lease_seconds: float = 30.0
    most_waiting: int = 100_000
    """In one queue; further ones are refused."""
    most_kept: int = 10_000
    """Finished jobs of one queue and status; the oldest go first."""


@dataclass(frozen=True, slots=True)
class Job:
    """One job as stored. Times are epoch seconds."""

    id: str
    queue: str
    status: str
    fingerprint: str
    payload: str
    """JSON."""
    retries: int
    max_retries: int
    priority: int
    run_after: float | None
    deadline: float | None
    error: str
    """Why the last run failed."""
    cursor: str
    """How far a job that goes on where it was has come."""
    created: float | None
    started: float | None
    finished: float | None


class Enqueued(NamedTuple):
    id: str
    new: bool
    """False: the same payload waits or runs already, as this id."""


class Claimed(NamedTuple):
    """A job to run. Whoever does not come back before ``lease_until`` (epoch s) loses it."""

    queue: str
    id: str
    token: str
    payload: str
    retries: int
    run_after: float
    cursor: str
    lease_until: float


class Result(NamedTuple):
    """How a run ended. ``delay`` (s) is the time until a failed job is tried again."""

    job: Claimed
    outcome: Outcome
    error: str = ""
    delay: float = 0.0
    run_seconds: float = 0.0


def canonical_json(payload: Mapping[str, Any]) -> str:
    """The one way to write ``payload``: keys sorted, no spaces, whole numbers without a fraction.

    Raises ValueError for what JSON cannot hold, and for more than MAX_PAYLOAD_BYTES.
    """
    try:
        plain = json.loads(json.dumps(payload, allow_nan=False), parse_float=_number)
        text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"no payload for a job: {error}") from error
    if not isinstance(plain, dict) or len(text) > MAX_PAYLOAD_BYTES:
        raise ValueError(f"a payload is an object of at most {MAX_PAYLOAD_BYTES} bytes")
    return text


def _number(text: str) -> int | float:
    number = float(text)
    return int(number) if number.is_integer() and abs(number) < _EXACT else number


def fingerprint(queue: str, canonical: str) -> str:
    """What two jobs have in common that are the same."""
    return hashlib.blake2b(f"{queue} {canonical}".encode(), digest_size=16).hexdigest()


def is_queue(name: str) -> bool:
    return _QUEUE.fullmatch(name) is not None


def check_queue(name: str) -> str:
    """A queue's name is part of keys and of counters; raises ValueError for one that cannot be."""
    if not is_queue(name):
        raise ValueError("a queue's name is lowercase letters, digits and underscores")
    return name


FIELDS = tuple(Job.__dataclass_fields__)


def parse_job(row: Sequence[bytes | None]) -> Job | None:
    """The values of FIELDS as stored; None when there is no such job."""
    text = {name: (value or b"").decode("utf-8", "replace") for name, value in zip(FIELDS, row, strict=True)}
    if not text["status"]:
        return None
    return Job(
        id=text["id"],
        queue=text["queue"],
        status=text["status"],
        fingerprint=text["fingerprint"],
        payload=text["payload"],
        retries=whole(text["retries"]),
        max_retries=whole(text["max_retries"]),
        priority=whole(text["priority"]),
        run_after=_seconds(text["run_after"]),
        deadline=_seconds(text["deadline"]),
        error=text["error"],
        cursor=text["cursor"],
        created=_seconds(text["created"]),
        started=_seconds(text["started"]),
        finished=_seconds(text["finished"]),
    )


def whole(text: str | bytes) -> int:
    """0 for what is no whole number: somebody else wrote it."""
    try:
        return int(text)
    except ValueError:
        return 0


def _seconds(text: str) -> float | None:
    return whole(text) / 1000 if text else None
