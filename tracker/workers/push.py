"""Sends the samples of the outbox to a receiver: StatHat or StatsD.

An accepted sample is removed from the store. A sample without a reply is sent again: an outage may count it twice,
but loses nothing that the outbox can hold. A sample that is rejected alone, while others are accepted, is dropped and
counted as dropped. While every sample is rejected, none is dropped: the key or the address is wrong then.
"""

import asyncio
import hashlib
import json
import random
import re
import socket
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Literal

import aiohttp
from redis.exceptions import RedisError

from tracker.settings.background import StatHatSettings, StatsDSettings
from tracker.store.schema.lenient_numbers import json_object
from tracker.store.stats.outbox import OutboxBatch
from tracker.store.store import Store
from tracker.system.http_client import open_session, read_body
from tracker.system.logger import Logger
from tracker.workers.loop import survive

MAX_SAMPLES = 500
"""Samples in one request. According to its clients StatHat accepts 1,000."""
FIRST_PAUSE_SECONDS = 30.0
MAX_PAUSE_SECONDS = 900.0
LEASE_MARGIN_SECONDS = 50.0
MAX_NAME_LENGTH = 255
MAX_SERVER_ERRORS = 5
"""Server errors in a row for a single sample, while others are accepted, before it counts as rejected."""
FLUSH_SECONDS = 60.0
"""How often the outbox is sent."""
_MAX_REQUESTS = 100
_FLUSH_SECONDS = 50.0

log = Logger("tracker.push")


@dataclass(frozen=True, slots=True)
class Sample:
    """One number to send; ``time`` is epoch s. Counts add up; a gauge is a measured value."""

    name: str
    number: int
    time: int
    kind: Literal["count", "gauge"] = "count"


class Outcome(Enum):
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    """The receiver will never accept this batch as it is."""
    SERVER_ERROR = "server error"
    """The receiver failed; this batch may be the cause."""
    UNAVAILABLE = "unavailable"
    """Retry later. The receiver may or may not have counted the batch."""


@dataclass(frozen=True, slots=True)
class Result:
    """``reason`` is a fixed text for the log; ``retry_after`` (s) is the pause that the receiver asks for."""

    outcome: Outcome
    reason: str = ""
    retry_after: float = 0.0


ACCEPTED = Result(Outcome.ACCEPTED)
Send = Callable[[Sequence[Sample]], Awaitable[Result]]
"""Sends one batch. Reports every failure in its result; raises CancelledError only."""
Acknowledge = Callable[[Sequence[OutboxBatch]], Awaitable[None]]


def shorten(name: str) -> str:
    """Shortens a name to 255 characters. A shortened name ends in a hash of the whole, so names stay different."""
    if len(name) <= MAX_NAME_LENGTH:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{name[: MAX_NAME_LENGTH - 17]}.{digest}"


# StatHat's EZ API: batches are posted to ``/ez`` as JSON. The EZ key is in the body only, never in a URL. No text of
# the reply is logged, because it may repeat the key.

TIMEOUT_SECONDS = 10.0
"""How long one reply may take. Nothing waits for it, and a batch without a reply is sent again."""
_MAX_REPLY_BYTES = 16_384
_FORBIDDEN = re.compile(r"[~\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_BAD_BATCH = (400, 413, 422)
_BAD_ADDRESS = (404, 405, 410)
_BUSY = (408, 425, 429, 502, 503, 504)
_KINDS = {"count": "count", "gauge": "value"}
_HEADERS = {"Content-Type": "application/json", "Accept": "application/json"}
_KEY_REJECTED = "EZ key rejected: check TRACKER_STATHAT__EZKEY"


class StatHat:
    """Enabled by an EZ key."""

    name = "StatHat"

    def __init__(self, settings: StatHatSettings, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self.timeout_seconds = timeout_seconds
        self._settings = settings

    @property
    def enabled(self) -> bool:
        return bool(self._settings.ezkey and self._settings.ezkey.get_secret_value())

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Send]:
        timeout = aiohttp.ClientTimeout(total=self.timeout_seconds)
        async with open_session(timeout, _HEADERS, keep_alive=False) as session:
            yield partial(self._post, session)

    async def _post(self, session: aiohttp.ClientSession, samples: Sequence[Sample]) -> Result:
        settings = self._settings
        assert settings.ezkey is not None
        data = [
            {"stat": stat_name(settings.prefix, each.name), _KINDS[each.kind]: each.number, "t": each.time}
            for each in samples
        ]
        body = json.dumps({"data": data, "ezkey": settings.ezkey.get_secret_value()}).encode()
        try:
            async with session.post(f"{settings.url}/ez", data=body, allow_redirects=False) as response:
                reply = await read_body(response, _MAX_REPLY_BYTES, ValueError("too long"))
                return parse_reply(response.status, response.headers.get("Retry-After", ""), reply)
        except (aiohttp.ClientError, OSError, ValueError) as error:  # TimeoutError is an OSError
            return Result(Outcome.UNAVAILABLE, f"no reply ({type(error).__name__})")


def stat_name(prefix: str, name: str) -> str:
    """A name that StatHat accepts: no ``~`` (it splits names), no control character, at most 255 characters."""
    return shorten(_FORBIDDEN.sub(lambda found: f"%{ord(found[0]):02X}", prefix + name))


def parse_reply(status: int, retry_after: str, body: bytes) -> Result:
    """The result; accepted only where both the HTTP status and the JSON in the body report success."""
    reply = json_object(body) or {}
    if 200 <= status < 300:
        inner = reply.get("status")
        if isinstance(inner, str) and inner.lower() == "ok":
            return ACCEPTED
        if not re.fullmatch(r"[1-9][0-9]{2}", str(inner)):
            return Result(Outcome.UNAVAILABLE, "invalid reply")
        status = int(str(inner))
        if 200 <= status < 300:
            return ACCEPTED
    about_key = status in (401, 403) or "key" in str(reply.get("msg")).lower()
    reason = _KEY_REJECTED if about_key else f"status {status}"
    if status in _BAD_BATCH:
        return Result(Outcome.REJECTED, reason)
    if 300 <= status < 400 or status in _BAD_ADDRESS:
        return Result(Outcome.UNAVAILABLE, f"status {status}: check TRACKER_STATHAT__URL")
    if status in _BUSY or about_key:
        seconds = float(retry_after) if re.fullmatch(r"[0-9]{1,6}", retry_after) else 0.0
        return Result(Outcome.UNAVAILABLE, reason, seconds)
    return Result(Outcome.SERVER_ERROR, reason)


# StatsD: samples are text lines in UDP packets. UDP has no reply. A packet counts as accepted unless the other host
# reports at once that the port is closed.

MAX_PACKET_BYTES = 1432
"""Fits into an Ethernet frame, also over IPv6 and through a tunnel."""
_RESOLVE_SECONDS = 5.0
_ERROR_SECONDS = 0.02
_UNSAFE = re.compile(r"[^A-Za-z0-9_.\-]")


class StatsD:
    """Enabled by an address."""

    name = "StatsD"
    timeout_seconds = _RESOLVE_SECONDS

    def __init__(self, settings: StatsDSettings) -> None:
        self._settings = settings

    @property
    def enabled(self) -> bool:
        return self._settings.endpoint is not None

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Send]:
        """The first batch resolves the name and chooses an address; all others go to the same one."""
        assert self._settings.endpoint is not None
        host, port = self._settings.endpoint
        with ExitStack() as stack:
            connected: socket.socket | None = None

            async def send(samples: Sequence[Sample]) -> Result:
                nonlocal connected
                packets = list(to_packets(to_line(self._settings.prefix, sample) for sample in samples))
                if connected is not None:
                    return await _send(connected, packets)
                result, connected = await _send_first(host, port, packets, stack)
                return result

            yield send


async def _send(connected: socket.socket, packets: Iterable[bytes]) -> Result:
    """A connected socket receives the errors of its packets."""
    try:
        for packet in packets:
            await asyncio.get_running_loop().sock_sendall(connected, packet)
        await asyncio.sleep(_ERROR_SECONDS)  # this also keeps a large outbox from flooding the receiver's buffer
        if number := connected.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(number, "")  # as send() raises it
    except OSError as error:
        return Result(Outcome.UNAVAILABLE, f"port closed ({type(error).__name__})")
    return ACCEPTED


async def _send_first(
    host: str, port: int, packets: Sequence[bytes], stack: ExitStack
) -> tuple[Result, socket.socket | None]:
    """Sends to the host's addresses in turn until one accepts: the result, and the socket of that one, which ``stack``
    closes."""
    try:
        async with asyncio.timeout(_RESOLVE_SECONDS):
            addresses = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError) as error:  # TimeoutError is an OSError
        return _unusable(error), None
    result = _unusable(OSError())
    for family, kind, protocol, _, address in addresses:
        try:
            connected = stack.enter_context(socket.socket(family, kind, protocol))
            connected.setblocking(False)
            connected.connect(address)
        except OSError as error:  # such as an IPv6 address on a host without IPv6
            result = _unusable(error)
            continue
        result = await _send(connected, packets)
        if result is ACCEPTED:
            return result, connected
    return result, None


def _unusable(error: Exception) -> Result:
    return Result(Outcome.UNAVAILABLE, f"address unusable ({type(error).__name__})")


def to_line(prefix: str, sample: Sample) -> bytes:
    """``name:number|c`` for a count, ``|g`` for a gauge. StatsD has no time: a count is taken as of now."""
    name = shorten(_UNSAFE.sub("_", prefix + sample.name))
    return f"{name}:{sample.number}|{sample.kind[0]}".encode()


def to_packets(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Joins ``lines`` into packets of at most 1432 bytes, each as full as the order allows."""
    packet = b""
    for line in lines:
        if packet and len(packet) + 1 + len(line) > MAX_PACKET_BYTES:
            yield packet
            packet = b""
        packet = packet + b"\n" + line if packet else line
    if packet:
        yield packet


Receiver = StatHat | StatsD


@dataclass(eq=False)
class Sender:
    """Empties the outbox at each ``flush``, except during a pause after a failure. ``gauges`` returns values by name,
    at least one, ``chance`` a random number in [0, 1)."""

    receiver: Receiver
    store: Store
    gauges: Callable[[], Awaitable[Mapping[str, int]]]
    chance: Callable[[], float] = random.random

    def __post_init__(self) -> None:
        self._flushing = asyncio.Lock()
        self._unacknowledged: deque[tuple[Acknowledge, list[OutboxBatch]]] = deque()
        self._max_samples = MAX_SAMPLES
        self._server_errors = 0
        self._failures = 0
        self._paused_until = 0.0
        self._last_reason = ""
        self._outbox = self.store.outbox
        self.store.connection.on_reconnect(self.acknowledge)

    async def flush(self, _payload: object = None) -> None:
        """Handles push_figures jobs, for StatHat and StatsD: sends what waits, for less than a minute. A failure of the
        receiver starts a pause. Raises StoreUnavailable and redis.exceptions.RedisError."""
        if not self.receiver.enabled:
            return
        async with self._flushing:
            await self.acknowledge()
            now = self.store.clock()
            if now < self._paused_until <= now + MAX_PAUSE_SECONDS:
                return
            async with self.receiver.connect() as send:
                result = await self._flush(send, now)
            if result.outcome is not Outcome.ACCEPTED:
                self._pause(result)
                return
            if self._last_reason:
                log.info("metrics receiver available again", receiver=self.receiver.name)
            self._failures, self._paused_until, self._last_reason = 0, 0.0, ""

    async def _flush(self, send: Send, now: float) -> Result:
        """Sends one gauge alone first. Once it is accepted, the receiver works, and the key and the address are
        right."""
        values = await self.gauges()
        first, *others = [Sample(name, value, int(now), "gauge") for name, value in values.items()]
        for gauges in filter(None, ([first], others)):
            result = await send(gauges)
            if result.outcome is not Outcome.ACCEPTED:
                return result
            self._count_as("sent", len(gauges))
        return await self._send_batches(send, now + _FLUSH_SECONDS)

    async def _send_batches(self, send: Send, until: float) -> Result:
        """Sends request after request. Halves a rejected one until the sample at fault is alone."""
        for _ in range(_MAX_REQUESTS):
            now, lease_seconds = self.store.clock(), self.receiver.timeout_seconds + LEASE_MARGIN_SECONDS
            batches = await self._outbox.take(now, self._max_samples, lease_seconds) if now < until else []
            if not batches:
                break
            size = sum(len(batch.counts) for batch in batches)
            try:
                result = await send(_samples(batches))
            except BaseException:
                await survive(self._outbox.release(batches))  # the leases expire without it
                raise
            outcome = self._limit_server_errors(result.outcome, size)
            if outcome is Outcome.ACCEPTED:
                self._max_samples = min(MAX_SAMPLES, 2 * self._max_samples)
                await self._acknowledge_by(self._outbox.acknowledge, batches)
                self._count_as("sent", size)
            elif outcome is Outcome.REJECTED and size == 1:
                await self._acknowledge_by(self._outbox.drop, batches)
                self._count_as("dropped")
                (sample,) = _samples(batches)
                log.warning("metric rejected and dropped", receiver=self.receiver.name, metric=sample.name)
            else:
                if outcome is not Outcome.UNAVAILABLE:
                    self._max_samples = max(1, size // 2)
                await self._acknowledge_by(self._outbox.release, batches)
            if outcome in (Outcome.UNAVAILABLE, Outcome.SERVER_ERROR):
                return result
        return ACCEPTED

    def _limit_server_errors(self, outcome: Outcome, size: int) -> Outcome:
        """Returns the outcome, or REJECTED after ``MAX_SERVER_ERRORS`` in a row for a single sample."""
        alone = outcome is Outcome.SERVER_ERROR and size == 1
        self._server_errors = self._server_errors + 1 if alone else 0
        if self._server_errors < MAX_SERVER_ERRORS:
            return outcome
        self._server_errors = 0
        return Outcome.REJECTED

    async def _acknowledge_by(self, acknowledge: Acknowledge, batches: list[OutboxBatch]) -> None:
        self._unacknowledged.append((acknowledge, batches))
        try:
            await self.acknowledge()
        except asyncio.CancelledError:
            # The store must get the result even if the task is cancelled. A second acknowledgement changes nothing.
            await survive(self.acknowledge())
            raise

    async def acknowledge(self) -> None:
        """Reports the results that the store does not know yet; also called when the store is back."""
        while self._unacknowledged:
            acknowledge, batches = entry = self._unacknowledged[0]
            refused = None
            try:
                await acknowledge(batches)
            except RedisError as error:  # refused for good: the leases expire, and the samples are sent again
                refused = error
            if self._unacknowledged and self._unacknowledged[0] is entry:  # not removed at a reconnect meanwhile
                self._unacknowledged.popleft()
            if refused is not None:
                raise refused

    def _pause(self, result: Result) -> None:
        self._count_as("failed")
        self._failures = min(self._failures + 1, 10)
        max_pause = min(MAX_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2**self._failures)
        pause = max(max_pause * self.chance(), min(result.retry_after, MAX_PAUSE_SECONDS))
        self._paused_until = self.store.clock() + pause
        if result.reason != self._last_reason:
            name, reason = self.receiver.name, result.reason
            log.warning("metrics receiver unavailable, buffering", receiver=name, reason=reason)
        self._last_reason = result.reason

    def _count_as(self, result: str, by: int = 1) -> None:
        self.store.counters.count(f"{self.receiver.name.lower()}.{result}", by=by)


def _samples(batches: Sequence[OutboxBatch]) -> list[Sample]:
    return [
        Sample(name.decode("utf-8", "replace"), count, batch.minute)
        for batch in batches
        for name, count in batch.counts.items()
    ]
