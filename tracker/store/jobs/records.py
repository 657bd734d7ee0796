"""Stored jobs, their limits, and the canonical form of their payloads."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

from tracker.store.schema.lenient_numbers import signed
from tracker.store.schema.record import Field, fields_of

PROCESS_TORRENT = "process_torrent"
"""The queue whose jobs score one torrent each: ``{"torrent_id": "7"}``."""
REPROCESS = "reprocess"
"""The queue whose jobs enqueue a ``process_torrent`` job for each torrent that matches a filter."""
REPROCESS_RETRIES = 10
"""A walk through many torrents may outlive several trackers. Each retry continues from the stored cursor."""
SWEEP = "sweep"
"""The queue whose jobs sweep all swarms immediately: ``{}``."""
DHT_LOOKUP = "dht_lookup"
"""The queue whose jobs look up one torrent each in the DHT: ``{"info_hash": <40 hex digits>}``. Trackers with a node
run them."""
STATUSES = ("pending", "running", "retry", "completed", "failed")
FINISHED = ("completed", "failed")
MAX_PRIORITY = 10
"""Priorities range from -MAX_PRIORITY to MAX_PRIORITY."""
MAX_PAYLOAD_BYTES = 65_536
MAX_ERROR = 1000
_QUEUE = re.compile(r"[a-z][a-z0-9_]{0,63}")
_EXACT = 2**53

Outcome = Literal["completed", "failed", "fatal", "returned", "postponed"]
"""The outcome of a run. ``failed`` is retried while retries are left; ``fatal`` is not. ``returned`` and ``postponed``
do not count as runs: the job returns to the queue at once, or after a delay."""


@dataclass(frozen=True, slots=True)
class JobLimits:
    max_retries: int = 2
    keep_seconds: float = 86_400
    lease_seconds: float = 30.0
    max_waiting: int = 100_000  # max waiting jobs of one queue; further jobs are refused
    max_kept: int = 10_000  # max finished jobs of one queue and status; the oldest are deleted first
    priorities: Mapping[str, int] = field(default_factory=dict)  # priorities of new jobs by queue; others have 0


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """What is set for one queue in the store."""

    concurrency: Annotated[
        int | None,
        Field(
            "Max jobs that run at the same time, over all trackers; none: TRACKER_JOBS__CONCURRENCY.",
            "limits",
            lowest=1,
            highest=256,
            column=12,
        ),
    ] = None
    priority: Annotated[
        int | None,
        Field(
            "Priority of new jobs, -10 to 10, the highest runs first; none: TRACKER_JOBS__PRIORITY.",
            "limits",
            lowest=-MAX_PRIORITY,
            highest=MAX_PRIORITY,
            column=9,
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class Job:
    id: Annotated[str, Field()]
    queue: Annotated[str, Field()]
    status: Annotated[str, Field()]
    fingerprint: Annotated[
        str, Field("Equal for jobs with the same queue and payload; only one of them can be unfinished.")
    ]
    payload: Annotated[str, Field("JSON.")]
    retries: Annotated[int, Field()]
    max_retries: Annotated[int, Field()]
    priority: Annotated[int, Field()]
    run_after: Annotated[float | None, Field(unit="epoch s")]
    deadline: Annotated[float | None, Field(unit="epoch s")]
    error: Annotated[str, Field("Last error.")]
    cursor: Annotated[str, Field("Progress of a resumable job.")]
    created: Annotated[float | None, Field(unit="epoch s")]
    started: Annotated[float | None, Field(unit="epoch s")]
    finished: Annotated[float | None, Field(unit="epoch s")]


class Enqueued(NamedTuple):
    id: str
    new: bool  # false if the same job waits or runs already, with this id


class Claimed(NamedTuple):
    """A job to run. A worker that does not finish it or extend its lease by ``lease_until`` (epoch s) loses it."""

    queue: str
    id: str
    token: str
    payload: str
    retries: int
    run_after: float
    cursor: str
    lease_until: float


class Result(NamedTuple):
    """The result of a run. ``delay`` (s) is the time until the next try of a failed or postponed job."""

    job: Claimed
    outcome: Outcome
    error: str = ""
    delay: float = 0.0
    run_seconds: float = 0.0


def canonical_json(payload: Mapping[str, Any]) -> str:
    """Returns the canonical JSON of ``payload``: sorted keys, no spaces, whole numbers without a fraction. Raises
    ValueError if JSON cannot represent the payload, or if it exceeds MAX_PAYLOAD_BYTES."""
    try:
        plain = json.loads(json.dumps(payload, allow_nan=False), parse_float=_number)
        text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"invalid job payload: {error}") from error
    if not isinstance(plain, dict) or len(text) > MAX_PAYLOAD_BYTES:
        raise ValueError(f"a payload is an object of at most {MAX_PAYLOAD_BYTES} bytes")
    return text


def _number(text: str) -> int | float:
    number = float(text)
    return int(number) if number.is_integer() and abs(number) < _EXACT else number


def fingerprint(queue: str, canonical: str) -> str:
    """Returns the hash that equal jobs of one queue share."""
    return hashlib.blake2b(f"{queue} {canonical}".encode(), digest_size=16).hexdigest()


def is_queue(name: str) -> bool:
    return _QUEUE.fullmatch(name) is not None


def check_queue(name: str) -> str:
    """Returns ``name``, which is part of keys and counters. Raises ValueError for an invalid queue name."""
    if not is_queue(name):
        raise ValueError("a queue name has only lowercase letters, digits and underscores")
    return name


FIELDS = tuple(fields_of(Job))


def parse_job(row: Sequence[bytes | None]) -> Job | None:
    """Parses the stored values of FIELDS. None if there is no such job."""
    values: dict[str, Any] = {}
    for each, value in zip(fields_of(Job).values(), row, strict=True):
        if each.unit:  # epoch ms
            values[each.name] = signed(value) / 1000 if value else None
        else:
            values[each.name] = signed(value) if each.kind == "number" else (value or b"").decode("utf-8", "replace")
    return Job(**values) if values["status"] else None
