"""D15: one reading of a torrent in 10 seconds, whatever is asked."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tracker.bittorrent import Endpoint, InfoHash
from tracker.dht.responder import NO_PART, Swarm
from tracker.frontends.dht.server import LIFETIME_SECONDS, MAX_SWARMS, MAX_WAITING, Key, SwarmCache, WaitingQuery
from tracker.settings.background import DhtSettings
from tracker.wire.krpc import GetPeers, NodeId, Query

HASH = InfoHash(b"h" * 20)
KEY: Key = (HASH, 4)
KNOWN = Swarm(True, (Endpoint(b"abcdef"),))


def waiting(number: int = 0) -> WaitingQuery:
    return WaitingQuery(Query(number.to_bytes(4, "big"), NodeId(b"a" * 20), GetPeers(HASH)), Endpoint(b"abcdef"))


def test_what_is_known_holds_for_ten_seconds() -> None:
    cache = SwarmCache()
    assert cache.get(KEY, 0) is None
    cache.finish(KEY, KNOWN, 0)
    assert cache.get(KEY, LIFETIME_SECONDS - 0.1) is KNOWN and cache.get((HASH, 6), 0) is None
    assert cache.get(KEY, LIFETIME_SECONDS) is None
    cache.finish(KEY, NO_PART, 20)
    assert cache.get(KEY, 20) is NO_PART


def test_queries_wait_for_one_reading() -> None:
    cache = SwarmCache()
    assert [cache.wait(KEY, waiting(number)) for number in range(3)] == [True, False, False]
    assert cache.wait((HASH, 6), waiting())
    assert cache.finish(KEY, KNOWN, 0) == [waiting(0), waiting(1), waiting(2)]
    assert cache.finish(KEY, KNOWN, 0) == [] and cache.waiting_count == 1


def test_a_failed_reading_is_not_kept() -> None:
    cache = SwarmCache()
    cache.wait(KEY, waiting())
    assert cache.finish(KEY, None, 0) == [waiting()] and cache.waiting_count == 0
    assert cache.get(KEY, 0) is None and cache.wait(KEY, waiting())


def test_a_torrent_that_changes_is_read_again() -> None:
    cache = SwarmCache()
    cache.wait(KEY, waiting())
    assert not cache.must_read_again(KEY)
    for everything in (False, True):
        if everything:
            cache.forget(None)
        else:
            cache.forget(HASH)
        assert cache.must_read_again(KEY) and not cache.must_read_again(KEY)
    cache.forget(InfoHash(b"other" * 4))
    cache.forget(HASH)
    cache.finish(KEY, None, 0)
    assert cache.wait(KEY, waiting()) and not cache.must_read_again(KEY), "the next reading begins later"


def key(number: int) -> Key:
    return InfoHash(number.to_bytes(20, "big")), 4


def test_both_are_bounded() -> None:
    cache = SwarmCache()
    for number in range(MAX_WAITING):
        assert cache.waiting_count == number
        assert cache.wait(key(number), waiting())
    for number in range(2 * MAX_SWARMS):
        cache.finish(key(number), KNOWN, 0)
    assert len(cache._swarms) == MAX_SWARMS and cache.waiting_count == 0
    assert cache.get(key(2 * MAX_SWARMS - 1), 0) is KNOWN


def test_as_many_torrents_as_the_limits_allow_are_remembered() -> None:
    """D21: however many are asked for in turn, none is read twice within 10 seconds."""
    settings, cache = DhtSettings(), SwarmCache()
    asked = int(settings.queries_burst + settings.queries_second * LIFETIME_SECONDS)
    for number in range(asked):
        cache.finish(key(number), KNOWN, 0)
    assert all(cache.get(key(number), 0) for number in range(asked))


@given(st.lists(st.floats(0.01, 5), min_size=1, max_size=100))
def test_a_flood_reads_once_in_ten_seconds(pauses: list[float]) -> None:
    cache, now, reads = SwarmCache(), 0.0, []
    for pause in pauses:
        now += pause
        if cache.get(KEY, now) is None and cache.wait(KEY, waiting()):
            reads.append(now)
            cache.finish(KEY, KNOWN, now)
    assert all(later - earlier >= LIFETIME_SECONDS for earlier, later in pairwise(reads))
