"""Webhooks to a real server on loopback: order, signatures, retries, gaps, leases, and deaths at any moment."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.store.harness import Store, info_hash, running, update
from tests.store.jobs.harness import Metrics
from tests.waiting import eventually, in_background
from tracker.store.changes.changes import FIRST, ChangePage
from tracker.store.changes.webhooks import LEASE_SECONDS, receiver_of, webhook_id
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules
from tracker.workers import webhooks as module
from tracker.workers.webhooks import MAX_CHANGES, MAX_PAUSE_SECONDS, POLL_SECONDS, WebhookWorker, encode_batch, sign

SECRET = "a secret of the site and the tracker"
DOCS = Path(__file__).parents[2] / "docs" / "changes.md"


@dataclass
class Receiver:
    """A site. ``status`` is its answer; ``hold`` is awaited before it answers."""

    status: int = 204
    hold: Callable[[], Any] | None = None
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    accepted: list[dict[str, Any]] = field(default_factory=list)
    """The changes of accepted batches, in the order of arrival."""
    gaps: list[bool] = field(default_factory=list)
    url: str = ""

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.requests.append((dict(request.headers), body))
        if self.hold is not None:
            await self.hold()
        if 200 <= self.status < 300:
            batch = json.loads(body)
            self.accepted += batch["changes"]
            self.gaps.append(batch["gap"])
        return web.Response(status=self.status, headers={"Location": "/hook"})

    @property
    def ids(self) -> list[str]:
        return [change["id"] for change in self.accepted]

    @property
    def distinct(self) -> list[str]:
        return list(dict.fromkeys(self.ids))


@asynccontextmanager
async def serving() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    app = web.Application(client_max_size=2**22)
    app.router.add_post("/hook", receiver.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook?key=hunter2"
        yield receiver
    finally:
        await runner.cleanup()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with serving() as receiver:
        yield receiver


@pytest.fixture
async def store(redis_url: str, prefix: str) -> AsyncIterator[Store]:
    async with running(Store(redis_url, Keys(prefix), SwarmRules(max_changes=100_000))) as store:
        yield store


def worker_of(store: Store, *receivers: Receiver, metrics: Metrics | None = None) -> WebhookWorker:
    if metrics is not None:
        metrics.follow(store)
    return WebhookWorker(store, {receiver.url: SECRET for receiver in receivers}, chance=lambda: 1.0)


async def happen(store: Store, count: int, first: int = 0) -> list[str]:
    """So many peers join. Returns the ids of their changes."""
    for start in range(first, first + count, 50):
        await store.announce_together(*(update(n, "s") for n in range(start, min(start + 50, first + count))))
    return [change.id for change in await store.changes.newest(count)]


async def test_changes_arrive_in_order_and_only_new_ones(store: Store, receiver: Receiver) -> None:
    await happen(store, 3)
    metrics = Metrics()
    worker = worker_of(store, receiver, metrics=metrics)
    async with aiohttp.ClientSession() as session:
        assert await worker.deliver_once(session, receiver.url) == POLL_SECONDS
        assert receiver.requests == []
        wanted = await happen(store, MAX_CHANGES + 1, first=3)
        assert await worker.deliver_once(session, receiver.url) == 0
        assert await worker.deliver_once(session, receiver.url) == POLL_SECONDS
        assert await worker.deliver_once(session, receiver.url) == POLL_SECONDS
    assert receiver.ids == wanted and receiver.gaps == [False, False]
    newest = [change.as_json() for change in await store.changes.newest(len(wanted))]
    assert receiver.accepted == json.loads(json.dumps(newest))
    assert receiver.accepted[0]["info_hash"] == info_hash(1).hex()
    assert metrics.counts == {"webhooks.delivered": 2, "webhooks.changes": MAX_CHANGES + 1}
    ((shown, state),) = await store.webhooks.all([receiver.url])
    assert shown == receiver_of(receiver.url) and "hunter2" not in shown
    assert (state.delivered, state.delivered_at) == (MAX_CHANGES + 1, int(store.clock.now))
    assert (state.position, state.failures, state.error) == (wanted[-1], 0, "")


def example() -> Callable[..., bool]:
    """The function of the page's example in Python."""
    (code,) = re.findall(r"```python\n(.*?)```", DOCS.read_text("utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102  # the documentation of this repository
    found: Callable[..., bool] = names["is_from_tracker"]
    return found


async def test_the_example_of_the_docs_checks_real_deliveries(store: Store, receiver: Receiver) -> None:
    worker, now = worker_of(store, receiver), store.clock.now
    async with aiohttp.ClientSession() as session:
        await worker.deliver_once(session, receiver.url)
        await happen(store, 1)
        await worker.deliver_once(session, receiver.url)
    ((headers, body),) = receiver.requests
    is_from_tracker = example()
    assert is_from_tracker(SECRET, receiver.url, headers, body, now)
    assert not is_from_tracker("another secret", receiver.url, headers, body, now)
    assert not is_from_tracker(SECRET, f"{receiver.url}x", headers, body, now)
    assert not is_from_tracker(SECRET, receiver.url, headers, body + b" ", now)
    assert not is_from_tracker(SECRET, receiver.url, {**headers, "X-Tracker-Timestamp": str(int(now) + 1)}, body, now)
    assert not is_from_tracker(SECRET, receiver.url, headers, body, now + 301)
    assert not is_from_tracker(SECRET, receiver.url, {}, body, now)
    assert not is_from_tracker(SECRET, receiver.url, {**headers, "X-Tracker-Signature": "sha256=\u00e9"}, body, now)
    assert not is_from_tracker(SECRET, receiver.url, {**headers, "X-Tracker-Timestamp": "\u00b2"}, body, now)


def test_the_signature_is_that_of_other_implementations() -> None:
    """`printf '1.http://h/.{}' | openssl dgst -sha256 -hmac key`"""
    expected = "51881a1fbdfdea7cfa75b0c4bbb2d5274cee11843cbb4c1b18c2fc1ef2f58583"
    assert sign("key", 1, "http://h/", b"{}") == f"sha256={expected}"
    assert encode_batch(ChangePage([], "5-0", False), gap=True) == b'{"gap":true,"next":"5-0","changes":[]}'


@pytest.mark.parametrize(("status", "text"), [(500, "status 500"), (307, "status 307"), (404, "status 404")])
async def test_a_refused_batch_is_sent_again_later_and_later(
    store: Store, receiver: Receiver, status: int, text: str
) -> None:
    worker = worker_of(store, receiver)
    receiver.status = status
    pauses = []
    async with aiohttp.ClientSession() as session:
        await worker.deliver_once(session, receiver.url)
        wanted = await happen(store, 2)
        for attempt in range(1, 12):
            await worker.deliver_once(session, receiver.url)
            await worker.deliver_once(session, receiver.url)  # too early: not posted
            assert len(receiver.requests) == attempt
            ((_, state),) = await store.webhooks.all([receiver.url])
            assert (state.failures, state.error) == (attempt, text)
            pauses.append(state.retry_at - store.clock.now)
            store.clock.now = state.retry_at
        assert worker.lag_seconds == store.clock.now - receiver_at(receiver)
        receiver.status = 200
        await worker.deliver_once(session, receiver.url)
    assert pauses == sorted(pauses) and pauses[0] <= 3 and pauses[-1] <= MAX_PAUSE_SECONDS + 1
    assert receiver.ids == wanted
    ((_, state),) = await store.webhooks.all([receiver.url])
    assert (state.failures, state.error, state.retry_at) == (0, "", 0)
    assert worker.lag_seconds == 0


def receiver_at(receiver: Receiver) -> float:
    """When the oldest change of the last batch happened."""
    at: float = json.loads(receiver.requests[-1][1])["changes"][0]["at"]
    return at


async def test_a_receiver_that_is_unavailable_is_a_failure_without_its_url(
    store: Store, receiver: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    receiver.url = receiver.url.replace("127.0.0.1", "127.0.0.2")
    worker = worker_of(store, receiver)
    async with aiohttp.ClientSession() as session:
        await worker.deliver_once(session, receiver.url)
        await happen(store, 1)
        await worker.deliver_once(session, receiver.url)
    ((_, state),) = await store.webhooks.all([receiver.url])
    assert state.error.startswith("no reply (Client")
    shown = "".join(capsys.readouterr())
    assert SECRET not in shown and "hunter2" not in shown


async def test_a_gap_is_told_in_the_next_batch(store: Store, receiver: Receiver) -> None:
    worker = worker_of(store, receiver)
    async with aiohttp.ClientSession() as session:
        await worker.deliver_once(session, receiver.url)
        await happen(store, 2)
        await worker.deliver_once(session, receiver.url)
        receiver.status = 503
        ids = await happen(store, 10, first=2)
        await worker.deliver_once(session, receiver.url)
        await store.redis.xtrim(store.keys.changes(), minid=ids[5], approximate=False)
        store.clock.now += 10
        receiver.status = 200
        await worker.deliver_once(session, receiver.url)
        last = await happen(store, 1, first=20)
        await worker.deliver_once(session, receiver.url)
    assert receiver.ids[2:] == ids[5:] + last
    assert receiver.gaps == [False, True, False]
    ((_, state),) = await store.webhooks.all([receiver.url])
    assert state.gaps == 1


async def test_a_feed_that_was_deleted_is_a_gap(store: Store, receiver: Receiver) -> None:
    worker = worker_of(store, receiver)
    async with aiohttp.ClientSession() as session:
        await worker.deliver_once(session, receiver.url)
        await happen(store, 2)
        await worker.deliver_once(session, receiver.url)
        await store.changes.delete()
        await worker.deliver_once(session, receiver.url)
        ((_, state),) = await store.webhooks.all([receiver.url])
        assert (state.position, state.gap) == (FIRST, True)
        ids = await happen(store, 1, first=5)
        await worker.deliver_once(session, receiver.url)
    assert receiver.ids[2:] == ids and receiver.gaps == [False, True]


async def test_one_tracker_at_a_time_delivers(store: Store, receiver: Receiver) -> None:
    first, second = worker_of(store, receiver), worker_of(store, receiver)
    async with aiohttp.ClientSession() as session:
        await first.deliver_once(session, receiver.url)
        await happen(store, 1)
        await second.deliver_once(session, receiver.url)
        assert receiver.requests == []
        await first.deliver_once(session, receiver.url)
        assert len(receiver.accepted) == 1
        # the first tracker dies, and its lease ends
        store.clock.now += LEASE_SECONDS
        await happen(store, 1, first=1)
        await second.deliver_once(session, receiver.url)
        await first.deliver_once(session, receiver.url)
    assert len(receiver.ids) == len(receiver.distinct) == 2


@pytest.mark.parametrize("held", [True, False])
async def test_a_worker_that_lost_its_lease_does_not_set_the_position_back(
    store: Store, receiver: Receiver, held: bool
) -> None:
    """Whether another one has the lease by then, or has given it up after a delivery."""
    first, second = worker_of(store, receiver), worker_of(store, receiver)
    stuck, answered = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        stuck.set()
        await answered.wait()

    async with aiohttp.ClientSession() as session:
        await first.deliver_once(session, receiver.url)
        await happen(store, 1)
        receiver.hold = hold
        late = asyncio.Task(first.deliver_once(session, receiver.url))
        await stuck.wait()
        receiver.hold = None
        store.clock.now += LEASE_SECONDS
        ids = await happen(store, 1, first=1)
        await second.deliver_once(session, receiver.url)
        if not held:
            await store.webhooks.release(webhook_id(receiver.url), second._token)
        answered.set()
        await late
    ((_, state),) = await store.webhooks.all([receiver.url])
    assert state.position == ids[-1] and len(receiver.distinct) == 2


async def test_a_worker_killed_at_any_moment_loses_nothing(
    store: Store, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each worker is cancelled at a random step; the next one goes on. The receiver gets every change, in order."""
    monkeypatch.setattr(module, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(module, "MAX_CHANGES", 7)
    async with aiohttp.ClientSession() as session:
        await worker_of(store, receiver).deliver_once(session, receiver.url)
    wanted: list[str] = []
    for number in range(30):
        wanted += await happen(store, 10, first=10 * number)
        store.clock.now += LEASE_SECONDS
        before = len(receiver.requests)
        async with in_background(worker_of(store, receiver).run()):
            if number % 3:
                await eventually(lambda before=before: len(receiver.requests) > before)  # type: ignore[misc]
    async with in_background(worker_of(store, receiver).run()):
        await eventually(lambda: len(receiver.distinct) == len(wanted))
    assert receiver.distinct == wanted
    assert not any(receiver.gaps)


async def test_a_slow_receiver_delays_no_other_one(store: Store, receiver: Receiver) -> None:
    async with serving() as other:
        stuck, worker = asyncio.Event(), worker_of(store, receiver, other)
        receiver.hold = stuck.wait
        async with aiohttp.ClientSession() as session:
            for each in (receiver, other):
                await worker.deliver_once(session, each.url)
        await happen(store, 5)
        async with in_background(worker.run()):
            await eventually(lambda: len(other.accepted) == 5 and len(receiver.requests) == 1)
            assert receiver.accepted == []
            stuck.set()
            await eventually(lambda: len(receiver.accepted) == 5)


async def test_the_lease_is_free_after_a_stop(store: Store, receiver: Receiver) -> None:
    async def is_held() -> bool:
        return bool(await store.redis.exists(store.keys.leases("webhook")))

    async with in_background(worker_of(store, receiver).run()):
        await eventually(is_held)
    assert not await is_held()


async def test_without_urls_nothing_runs(store: Store) -> None:
    await worker_of(store).run()
