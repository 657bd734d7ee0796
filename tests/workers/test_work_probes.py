"""Projects with ``verify`` ``handshake`` or ``piece``: seeders are probed once a day (row W25)."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.store.harness import Store
from tests.store.work.harness import claimed, text, trusted
from tests.store.work.volunteers import ITEM, announce, seeding_project, state
from tests.workers.prober.peers import PIECES, is_here, loopback, peer, seeder
from tracker.bittorrent import Endpoint, InfoHash
from tracker.wire.handshake import Kind, Message
from tracker.wire.torrent_file import Pieces
from tracker.workers.prober import Prober
from tracker.workers.work import WorkVerification

DAY = 86_400
ALL = Message(Kind.HAVE_ALL)


async def kept(_: InfoHash) -> Pieces:
    return PIECES


async def not_kept(_: InfoHash) -> None:
    return None


async def closes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Like a client that takes encrypted connections only."""
    await reader.read(1)


@contextmanager
def nobody() -> Iterator[Endpoint]:
    """An endpoint where nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield loopback(taken.getsockname()[1])


class Volunteer:
    """User 7 claims, and announces itself as a seeder at an endpoint, while the jobs run."""

    def __init__(self, store: Store, endpoint: Endpoint, *, piece: bool = False, enabled: bool = True) -> None:
        self.store = store
        self.endpoint = endpoint
        self.counted: list[str] = []
        self.enabled = enabled
        self.prober = Prober(
            lambda: self.enabled,
            self.counted.append,
            monotonic=store.clock,
            sleep=self._sleep,
            randbelow=lambda _: 3,
            is_target=is_here,
        )
        self.job = WorkVerification(store, self.prober, kept if piece else not_kept)

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)

    async def claim(self, **fields: Any) -> None:
        await seeding_project(self.store, **{"verify": "handshake", "seed_hours": 30, **fields})
        await claimed(self.store, "7")
        await self.announce("s")

    async def announce(self, event: str = "u") -> None:
        await announce(self.store, event=event, endpoint=self.endpoint)

    async def seed(self, hours: float) -> None:
        """Announces and runs the jobs every half an hour."""
        for _ in range(int(2 * hours)):
            await self.store.pass_time(1800)
            await self.announce()
            await self.job.handle()
            await self.store.work.claims.lapse("proj")


async def logged(store: Store) -> list[dict[str, str]]:
    return [text(row) for _, row in await store.redis.xrange(store.keys.work_log("proj"))]


@pytest.mark.parametrize("level", ["handshake", "piece"])
async def test_an_honest_seeder_is_probed_once_a_day_and_done(private: Store, level: str) -> None:
    async with peer(seeder(ALL)) as endpoint:
        volunteer = Volunteer(private, endpoint, piece=True)
        await volunteer.claim(verify=level)
        await volunteer.seed(24)
        assert volunteer.counted == ["probes.confirmed"]
        await volunteer.seed(6)
        assert await state(private) == "done"
        assert volunteer.counted == ["probes.confirmed"] * 2


async def test_a_liar_that_only_announces_fails(private: Store) -> None:
    """W25: twice, a day apart; it is not counted late, and trust falls."""
    with nobody() as endpoint:
        volunteer = Volunteer(private, endpoint)
        await volunteer.claim(seed_hours=2)
        await volunteer.seed(10)
        assert await state(private) == "seeding"
        await volunteer.seed(15)
        assert volunteer.counted == ["probes.unreachable"] * 2
        assert await state(private) == "gone"
        assert await trusted(private, "proj", "7") == 1
        await volunteer.seed(30)
        assert await logged(private) == []
        assert await private.work.verification.count("proj") == 0


async def test_wrong_data_fails(private: Store) -> None:
    """W25: at level ``piece``, of a peer that answers every handshake."""

    def wrong(request: Message) -> Message:
        return Message(Kind.PIECE, request.index, request.begin, data=bytes(request.length))

    async with peer(seeder(ALL, answer=wrong)) as endpoint:
        volunteer = Volunteer(private, endpoint, piece=True)
        await volunteer.claim(verify="piece", seed_hours=2)
        await volunteer.seed(26)
        assert volunteer.counted == ["probes.lied"] * 2
        assert await state(private) == "gone"


async def test_a_failure_that_was_an_accident_delays_only(private: Store) -> None:
    with nobody() as nowhere:
        volunteer = Volunteer(private, nowhere)
        await volunteer.claim(seed_hours=2)
        await volunteer.seed(3)
    async with peer(seeder(ALL)) as endpoint:
        volunteer.endpoint = endpoint
        await volunteer.seed(20)
        assert (await private.work.verification.ask("proj", "7", ITEM)).outcome == "unverified"
        await volunteer.seed(4)
    assert await state(private) == "done"


async def test_who_cannot_be_checked_is_counted_by_announces(private: Store) -> None:
    """W25: never called a liar."""
    async with peer(closes) as endpoint:
        volunteer = Volunteer(private, endpoint)
        await volunteer.claim()
        await volunteer.seed(31)
    assert volunteer.counted == ["probes.unknown"] * 2
    assert await state(private) == "done"


async def test_without_probes_announces_count(private: Store) -> None:
    with nobody() as endpoint:
        volunteer = Volunteer(private, endpoint, enabled=False)
        await volunteer.claim(seed_hours=2)
        await volunteer.seed(3)
    assert await state(private) == "done"


async def test_probes_can_be_turned_on_and_off_meanwhile(private: Store) -> None:
    async with peer(seeder(ALL)) as endpoint:
        volunteer = Volunteer(private, endpoint, enabled=False)
        await volunteer.claim(seed_hours=40)
        with capture_logs() as logs:
            await volunteer.seed(2)
        assert [entry["projects"] for entry in logs if "TRACKER_PROBE" in entry["event"]] == [["proj"]]
        assert volunteer.counted == []
        volunteer.enabled = True
        await volunteer.seed(2)
        assert volunteer.counted == ["probes.confirmed"]
        volunteer.enabled = False
        await volunteer.seed(30)
        assert volunteer.counted == ["probes.confirmed"]


async def test_claims_at_one_endpoint_wait_for_each_other(private: Store) -> None:
    """The prober connects to an endpoint once an hour: the other claim's turn comes later, and nothing is held against
    it."""
    async with peer(seeder(ALL)) as endpoint:
        volunteer = Volunteer(private, endpoint)
        await volunteer.claim(seed_hours=2)
        await volunteer.prober.check(endpoint, InfoHash(bytes.fromhex(ITEM)))
        await volunteer.seed(0.5)
        assert volunteer.counted == ["probes.confirmed", "probes.deferred"]
        await volunteer.seed(2)
    assert volunteer.counted == ["probes.confirmed", "probes.deferred", "probes.confirmed"]
    assert await state(private) == "done"
