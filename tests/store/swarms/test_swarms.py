"""Announces at the store: registration, refusals, joins, updates, stops (rows T2, T3, T5 to T8, T20, T25)."""

import asyncio
import hashlib
import random

import pytest

from loadtest.invariants import check_invariants
from tests.store.conftest import MakeStore
from tests.store.harness import ALICE, START, Store, due_deadline, endpoint, info_hash, peer_id, timeout_key, update
from tracker.bittorrent import InfoHash, ScrapeFile
from tracker.errors import StoreUnavailable
from tracker.store.swarms.codec import COMPLETED_MEMBER, WITH_IDS, Admitted, Refused


async def test_open_mode_registers_a_torrent_at_its_first_announce(store: Store) -> None:
    """T3: the ID, the way back from it, the place in the rankings."""
    reply = await store.announce(update(1, "s"))
    assert reply == Admitted(0, 1, 0, b"", b"", b"", b"", "join")
    assert await store.redis.get(store.keys.info_hash(info_hash(1))) == b"1"
    assert await store.redis.get(store.keys.torrent_id(1)) == info_hash(1).hex().encode()
    assert await check_invariants(store.redis, store.keys) == 1


async def test_ids_in_use_are_skipped(store: Store) -> None:
    await store.redis.set(store.keys.torrent_id(1), info_hash(99).hex())
    await store.announce(update(1, "s"))
    assert await store.redis.get(store.keys.info_hash(info_hash(1))) == b"2"


async def test_registered_mode_follows_registrations_at_once(make_store: MakeStore) -> None:
    """T3: after a deletion the next announce is refused, after an addition accepted. Old peers are still reaped."""
    store = await make_store(open=False)
    assert await store.refused(update(1, "s")) == "unknown torrent"
    await store.torrents.add(info_hash(1))
    await store.announce(update(1, "s"))
    await store.redis.delete(store.keys.info_hash(info_hash(1)))
    assert await store.refused(update(1)) == "unknown torrent"
    assert await store.silence(update(1)) == 1
    assert await check_invariants(store.redis, store.keys) == 0
    await store.torrents.add(info_hash(1))
    assert (await store.announce(update(1))).outcome == "join"


async def test_a_completion_without_permission_to_join_counts_for_members_only(store: Store) -> None:
    """It counts as usual for a peer in the swarm. It changes nothing for a new peer or for another client's entry."""
    completed = COMPLETED_MEMBER.decode()
    await store.announce(update(1, "s"))
    before = await store.dump()
    for outsider in (
        update(2, completed, bytes_left=0),
        update(1, completed, bytes_left=0, endpoint=endpoint(2)),
        update(1, completed, torrent=2, bytes_left=0),
    ):
        assert await store.refused(outsider) == "may not join"
    assert await store.dump() == before
    reply = await store.announce(update(1, completed, bytes_left=0, downloaded=1000))
    assert (reply.outcome, reply.seeders, reply.completions) == ("update", 1, 1)
    assert await check_invariants(store.redis, store.keys) == 1


async def test_a_stop_reports_whether_it_removed_a_peer(store: Store) -> None:
    await store.announce(update(1, "s"))
    found = [(await store.announce(update(peer, "x"))).outcome for peer in (2, 1, 1)]
    assert found == ["absent", "leave", "absent"]


async def test_a_self_registered_torrent_stays_registered_in_registered_mode(make_store: MakeStore) -> None:
    """docs/operations.md: an open tracker that becomes a registered one."""
    await (await make_store()).announce(update(1, "s"))
    store = await make_store(open=False)
    assert (await store.announce(update(2, "s"))).outcome == "join"
    await store.torrents.remove(info_hash(1))
    assert await store.refused(update(2)) == "unknown torrent"


async def test_a_site_registers_a_torrent_by_writing_one_key(make_store: MakeStore) -> None:
    store = await make_store(open=False)
    await store.redis.set(store.keys.info_hash(info_hash(1)), "4711")
    await store.announce(update(1, "s"))
    assert await store.redis.get(store.keys.torrent_id(4711)) == info_hash(1).hex().encode()
    assert (await store.torrent(info_hash(1)))["tid"] == "4711"
    assert await check_invariants(store.redis, store.keys) == 1


@pytest.mark.parametrize("torrent_id", ["0", "x", "1e3", "-1", "007", "9" * 16])
async def test_a_malformed_torrent_id_is_refused(make_store: MakeStore, torrent_id: str) -> None:
    store = await make_store(open=False)
    await store.redis.set(store.keys.info_hash(info_hash(1)), torrent_id)
    before = await store.dump()
    assert await store.refused(update(1, "s")) == "bad torrent id"
    assert await store.dump() == before


async def test_peers_keep_their_torrent_id_until_the_swarm_is_empty(make_store: MakeStore) -> None:
    store = await make_store(open=False)
    await store.redis.set(store.keys.info_hash(info_hash(1)), "5")
    await store.announce(update(1, "s"))
    await store.redis.set(store.keys.info_hash(info_hash(1)), "6")
    assert (await store.announce(update(1))).outcome == "update"
    assert (await store.announce(update(2, "s"))).leechers == 2
    assert await check_invariants(store.redis, store.keys) == 2
    await store.announce(update(1, "x"))
    await store.announce(update(2, "x"))
    await store.announce(update(1, "s"))
    assert (await store.torrent(info_hash(1)))["tid"] == "6"
    assert await store.redis.get(store.keys.torrent_id(5)) is None
    assert await check_invariants(store.redis, store.keys) == 1


async def test_an_id_assigned_twice_waits_for_the_first_swarm(make_store: MakeStore) -> None:
    store = await make_store(open=False)
    for number in (1, 2):
        await store.redis.set(store.keys.info_hash(info_hash(number)), "5")
    await store.announce(update(1, "s", torrent=1))
    assert await store.refused(update(2, "s", torrent=2)) == "torrent id in use"
    await store.announce(update(1, "x", torrent=1))
    await store.announce(update(2, "s", torrent=2))


async def test_open_mode_limits_registrations(make_store: MakeStore) -> None:
    store = await make_store(max_torrents=3, new_per_address_hour=2)
    await store.announce(update(1, "s", torrent=1))
    await store.announce(update(1, "s", torrent=2))
    before = await store.dump()
    assert await store.refused(update(1, "s", torrent=3)) == "too many new torrents"
    assert await store.dump() == before
    await store.announce(update(2, "s", torrent=3))
    assert await store.refused(update(3, "s", torrent=4)) == "too many torrents"
    assert (await store.announce(update(3, "s", torrent=1))).outcome == "join"
    assert 0 < await store.redis.ttl(f"{store.keys.prefix}registered_by:11.0.0.1") <= 3600


async def test_ipv6_registrations_count_by_64_prefix(make_store: MakeStore) -> None:
    store = await make_store(new_per_address_hour=1)
    await store.announce(update(1, "s", torrent=1, endpoint=endpoint(1, v6=True)))
    other = update(2, "s", torrent=2, endpoint=endpoint(2, v6=True))
    assert await store.refused(other) == "too many new torrents"


async def test_refusals_change_nothing(make_store: MakeStore) -> None:
    """T2: each reason has its own code, and no key changes, but for the unregistered torrents of a user."""
    store = await make_store(accounts="required", open=False)
    for number in (1, 2, 3):
        await store.torrents.add(info_hash(number))
    await store.torrents.edit(info_hash(2), {"enabled": "0", "reason": "taken down"})
    await store.torrents.deny(info_hash(3), "not here")
    await store.users.add("1", "good" * 5)
    await store.users.add("2", "disabled" * 5)
    await store.users.edit("disabled" * 5, {"enabled": False})
    await store.users.add("3", "seeder" * 5, can_leech=False)
    await store.users.add("4", "unpaid" * 5, enabled=False, reason="unpaid: see /account")
    cases = [
        (update(1, "s", passkey=""), Refused("unknown passkey", "", True)),
        (update(1, "s", passkey="nobody" * 4), Refused("unknown passkey", "", True)),
        (update(1, "s", passkey="disabled" * 5), Refused("user disabled", "")),
        (update(1, "s", passkey="unpaid" * 5), Refused("user disabled", "unpaid: see /account")),
        (update(1, "s", passkey="seeder" * 5), Refused("may not leech", "")),
        (update(1, "s", passkey="seeder" * 5, bytes_left=None), Refused("may not leech", "")),
        (update(1, "s", passkey="good" * 5, torrent=9), Refused("unknown torrent at first", "")),
        (update(1, "s", passkey="good" * 5, torrent=2), Refused("disabled", "taken down")),
        (update(1, "s", passkey="good" * 5, torrent=3), Refused("denied", "not here")),
    ]
    before = await store.dump()
    for refused, expected in cases:
        assert await store.swarms.announce(refused) == expected
    for passkey, reason in (("disabled", ""), ("unpaid", "unpaid: see /account")):
        assert await store.swarms.scrape([info_hash(1)], passkey * 5) == Refused("user disabled", reason)
    assert await store.swarms.scrape([info_hash(1)], "nobody" * 4) == Refused("unknown passkey", "", True)
    assert await store.redis.unlink(store.keys.user_unregistered(1)) == 1
    assert await store.dump() == before
    assert (await store.announce(update(1, "s", passkey="seeder" * 5, bytes_left=0))).seeders == 1


async def test_started_writes_the_fields_of_the_key_table(store: Store) -> None:
    """T5."""
    joined = update(1, "s", uploaded=5, downloaded=6, key=b"a client's own", timeout_seconds=2700.5)
    await store.announce(joined)
    assert await store.peer(joined) == {
        "uploaded": "5",
        "downloaded": "6",
        "left": "1000",
        "first_announce": str(START),
        "last_announce": str(START),
        "active": "1",
        "endpoints": endpoint(1),
        "n4": "0",
        "key": hashlib.sha1(b"a client's own", usedforsecurity=False).hexdigest()[:8].encode(),
    }
    pid = peer_id(1)
    assert await store.redis.smembers(store.keys.swarm_peers(info_hash(1))) == {pid.hex().encode()}
    assert await store.redis.smembers(f"{store.keys.prefix}p:{pid.hex()}:torrents") == {b"1"}
    assert 2_699_000 < await store.redis.pttl(timeout_key(store.keys, 1, pid)) <= 2_700_500
    due = due_deadline(START + 1, 2700.5)
    assert await store.redis.lrange(store.keys.due(due), 0, -1) == [pid + b"1"]
    assert await store.redis.get(timeout_key(store.keys, 1, pid)) == b"%d" % (due // 2 % 10_000)


async def test_every_announce_but_stopped_resets_the_timeout(store: Store) -> None:
    """T6, T5: a longer interval has a longer timeout."""
    key = timeout_key(store.keys, 1, peer_id(1))
    for event in "sucp":
        await store.announce(update(1, event, timeout_seconds=100))
        assert 99_000 < await store.redis.pttl(key) <= 100_000
        await store.redis.expire(key, 5)
    await store.announce(update(1, timeout_seconds=5000))
    assert 4_999_000 < await store.redis.pttl(key) <= 5_000_000
    await store.announce(update(1, "x"))
    assert not await store.redis.exists(key)


async def test_stopped_removes_the_peer_once(store: Store) -> None:
    """T6: and no timeout removes it a second time."""
    await store.announce(update(1, "s"))
    await store.announce(update(2, "s"))
    assert (await store.announce(update(1, "x"))).leechers == 1
    assert (await store.announce(update(1, "x"))).leechers == 1
    assert await store.silence(update(1)) == 0
    assert await check_invariants(store.redis, store.keys) == 1


async def test_completed_counts_once_per_peer(store: Store) -> None:
    """T7."""
    await store.announce(update(1, "s"))
    for _ in range(3):
        assert (await store.announce(update(1, "c", bytes_left=0, downloaded=1000))).completions == 1
    assert (await store.announce(update(1, bytes_left=0, downloaded=1000))).completions == 1
    assert await store.redis.zscore(store.keys.index("snatches"), "1") == 1


async def test_completed_by_a_seeder_that_never_downloaded_is_no_snatch(store: Store) -> None:
    await store.announce(update(1, "s", bytes_left=0))
    assert (await store.announce(update(1, "c", bytes_left=0))).completions == 0


async def test_completed_with_bytes_left_is_no_snatch(store: Store) -> None:
    await store.announce(update(1, "s"))
    reply = await store.announce(update(1, "c", bytes_left=5))
    assert (reply.completions, reply.leechers) == (0, 1)


async def test_zero_bytes_left_makes_a_seeder(store: Store) -> None:
    """T8: in all counts at once, those of the reply included, with and without the event."""
    await store.announce(update(1, "s"))
    await store.announce(update(2, "s"))
    reply = await store.announce(update(1, bytes_left=0))
    assert (reply.seeders, reply.leechers, reply.completions) == (1, 1, 1)
    assert await store.redis.zscore(store.keys.index("seeders"), "1") == 1
    assert await store.redis.mget(store.keys.stat("seeders"), store.keys.stat("leechers")) == [b"1", b"1"]
    await check_invariants(store.redis, store.keys)
    assert (await store.announce(update(1, "c", bytes_left=0, downloaded=9))).completions == 1


async def test_a_partial_seed_is_a_leecher_that_downloads_nothing(store: Store) -> None:
    """BEP 21: `paused` until an announce without it."""
    await store.announce(update(1, "s"))
    reply = await store.announce(update(2, "p"))
    assert (reply.leechers, len(reply.peers)) == (2, 6)
    assert await store.swarms.scrape([info_hash(1)]) == {info_hash(1): ScrapeFile(0, 2, 0, 1)}
    await store.announce(update(2))
    assert await store.swarms.scrape([info_hash(1)]) == {info_hash(1): ScrapeFile(0, 2, 0, 2)}


async def test_the_stored_state_decides_which_count_a_stop_lowers(store: Store) -> None:
    """Some clients that seeded send `stopped` with bytes left."""
    await store.announce(update(1, "s", bytes_left=0))
    reply = await store.announce(update(1, "x", bytes_left=16384))
    assert (reply.seeders, reply.leechers) == (0, 0)
    assert await check_invariants(store.redis, store.keys) == 0


async def test_both_families_are_one_peer(store: Store) -> None:
    """BEP 7: a client with a key on IPv4 and IPv6 counts once and never receives itself."""
    v4, v6 = endpoint(1), endpoint(1, v6=True)
    await store.announce(update(1, "s", key=b"k" * 8))
    reply = await store.announce(update(1, "s", key=b"k" * 8, endpoint=v6))
    assert (reply.outcome, reply.leechers, reply.peers, reply.peers6) == ("update", 1, b"", b"")
    other = await store.announce(update(2, "s"))
    assert (other.peers, other.peers6) == (v4, v6)
    # known by either address from now on, also without the key
    assert (await store.announce(update(1, endpoint=v6))).outcome == "update"
    assert (await store.announce(update(1))).outcome == "update"
    assert await check_invariants(store.redis, store.keys) == 2


async def test_a_client_cannot_change_the_entry_of_another(store: Store) -> None:
    """A client without the key that announces a known peer ID gets peers. It changes and refreshes nothing."""
    await store.announce(update(1, "s", key=b"k" * 8))
    await store.announce(update(2, "s"))
    await store.redis.expire(timeout_key(store.keys, 1, peer_id(1)), 50)
    before = await store.dump()
    for event in "usxc":
        forged = update(1, event, endpoint=endpoint(77), bytes_left=0)
        answer = await store.announce(forged)
        assert answer.outcome == ("absent" if event == "x" else "stranger")
        assert set(six(answer.peers)) == ({endpoint(1), endpoint(2)} if event != "x" else set())
    after = await store.dump()
    assert after == before
    await store.announce(update(1, "x", key=b"k" * 8))
    assert (await store.announce(update(1, "s", endpoint=endpoint(77)))).outcome == "join"


async def test_a_changed_port_moves_the_endpoint(store: Store) -> None:
    await store.announce(update(1, "s"))
    await store.announce(update(1, endpoint=endpoint(1, port=7000)))
    assert (await store.announce(update(2, "s"))).peers == endpoint(1, port=7000)
    await check_invariants(store.redis, store.keys)


async def test_the_own_endpoint_under_an_old_peer_id_is_not_returned(store: Store) -> None:
    """A restarted client has a new peer ID; its old entry is of no use to it."""
    await store.announce(update(1, "s"))
    assert (await store.announce(update(2, "s", endpoint=endpoint(1)))).peers == b""


async def test_seeders_get_leechers_only_and_leechers_get_three_quarters_seeders(store: Store) -> None:
    for number in range(1, 21):
        await store.announce(update(number, "s", bytes_left=0 if number <= 10 else 1))
    seeds = {endpoint(n) for n in range(1, 11)}
    leeches = {endpoint(n) for n in range(11, 21)}
    to_seeder = (await store.announce(update(1, bytes_left=0))).peers
    assert set(six(to_seeder)) == leeches
    to_leecher = six((await store.announce(update(11, peers_wanted=12, random=3))).peers)
    assert len(set(to_leecher)) == 12
    assert len(seeds.intersection(to_leecher)) == 9
    assert set(to_leecher) - seeds < leeches - {endpoint(11)}


@pytest.mark.parametrize(
    ("seeders", "leechers", "wanted", "given"),
    [
        (100, 200, 50, (37, 13)),
        (100, 5, 50, (46, 4)),  # too few leechers: seeders fill up
        (3, 200, 50, (3, 47)),  # too few seeders
        (100, 200, 1, (1, 0)),
        (100, 200, 2, (1, 1)),
        (100, 1, 50, (50, 0)),  # only the caller
    ],
)
async def test_seeders_and_leechers_fill_up_for_each_other(
    store: Store, seeders: int, leechers: int, wanted: int, given: tuple[int, int]
) -> None:
    numbers = range(1, seeders + leechers + 1)
    await asyncio.gather(*(store.announce(update(n, "s", bytes_left=0 if n <= seeders else 1)) for n in numbers))
    seeds = {endpoint(n) for n in range(1, seeders + 1)}
    caller = seeders + leechers
    for start in range(0, 400, 13):
        answer = await store.announce(update(caller, bytes_left=1, peers_wanted=wanted, random=start))
        got = six(answer.peers)
        assert len(set(got)) == len(got) and endpoint(caller) not in got
        assert (len(seeds.intersection(got)), len(set(got) - seeds)) == given


async def test_peers_that_joined_in_sequence_are_not_returned_together(store: Store) -> None:
    """60 of 500 peers join one after another: a window of 50 slots holds few of them."""
    chance = random.Random(1)
    for numbers in (range(1, 221), range(1001, 1061), range(221, 441)):
        await asyncio.gather(
            *(store.announce(update(n, "s", random=chance.getrandbits(31), peers_wanted=0)) for n in numbers)
        )
    together = {endpoint(n) for n in range(1001, 1061)}
    answers = [six((await store.announce(update(1, random=chance.getrandbits(31)))).peers) for _ in range(200)]
    counts = [len(together.intersection(got)) for got in answers]
    assert max(counts) < 20 and 4 < sum(counts) / len(counts) < 9
    assert await check_invariants(store.redis, store.keys) == 500


def six(packed: bytes) -> list[bytes]:
    """The IPv4 endpoints of a reply."""
    return [packed[at : at + 6] for at in range(0, len(packed), 6)]


async def test_windows_reach_every_peer(store: Store) -> None:
    """Random windows wrap around: over many announces every peer receives every other."""
    for number in range(1, 31):
        await store.announce(update(number, "s"))
    seen: set[bytes] = set()
    for start in range(30):
        peers = (await store.announce(update(1, peers_wanted=5, random=start))).peers
        assert len(peers) == 30
        seen |= {peers[i : i + 6] for i in range(0, 30, 6)}
    assert seen == {endpoint(n) for n in range(2, 31)}


async def test_peer_ids_come_in_the_order_of_the_endpoints(store: Store) -> None:
    for number in range(1, 10):
        await store.announce(update(number, "s", bytes_left=number % 2))
    reply = await store.announce(update(1, bytes_left=1, form=WITH_IDS))
    got = {reply.peers[i * 6 : i * 6 + 6]: reply.peer_ids[i * 20 : i * 20 + 20] for i in range(len(reply.peers) // 6)}
    assert got == {endpoint(n): peer_id(n) for n in range(2, 10)}


async def test_numwant_zero_returns_no_peers(store: Store) -> None:
    """T25."""
    await store.announce(update(1, "s"))
    assert (await store.announce(update(2, "s", peers_wanted=0))).peers == b""


async def test_concurrent_announces_share_calls(store: Store) -> None:
    """One EVALSHA carries the waiting announces, at most 64."""
    await store.announce(update(1, "s"))
    before = await calls(store)
    replies = await asyncio.gather(*(store.announce(update(n, "s")) for n in range(2, 202)))
    assert await calls(store) - before <= 5
    assert sorted(r.leechers for r in replies) == list(range(2, 202))
    assert await check_invariants(store.redis, store.keys) == 201


async def calls(store: Store) -> int:
    stats = await store.redis.info("commandstats")
    return int(stats["cmdstat_evalsha"]["calls"])


async def test_arrays_have_little_spare_room(store: Store) -> None:
    """At most an eighth and four slots; a string that Redis grows doubles its size."""
    for number in range(1, 101):
        await store.announce(update(number, "s"))
    for name, size in (("l4", 6), ("l4i", 20)):
        key = f"{store.keys.prefix}swarm:{info_hash(1).hex()}:{name}"
        slots = await store.redis.strlen(key) / size
        assert 100 <= slots <= 113
        assert await store.redis.memory_usage(key) < 113 * size + 250


async def test_a_broken_key_fails_its_own_announce_only(store: Store) -> None:
    """An announce that fails in the script changes nothing and affects no other of its call."""
    await store.announce(update(1, "s"))
    await store.redis.set(store.keys.swarm_peers(info_hash(2)), "a string")
    before = await store.dump()
    good, bad = await asyncio.gather(store.swarms.announce(update(1)), store.swarms.announce(update(2, "s", torrent=2)))
    assert isinstance(good, Admitted) and bad == Refused("error", "")
    after = await store.dump()
    assert {k for k in before | after if before.get(k) != after.get(k)} <= {
        store.keys.peer(1, peer_id(1)).encode(),
        store.keys.torrent(info_hash(1)).encode(),
        store.keys.due(due_deadline(START + 1, 2700)).encode(),
    }


async def test_lost_scripts_are_loaded_again(store: Store) -> None:
    await store.announce(update(1, "s"))
    await store.redis.script_flush()
    assert (await store.announce(update(1))).leechers == 1


async def test_a_repeated_announce_is_harmless(private: Store) -> None:
    """Clients repeat an announce whose reply was lost: no second credit, no second snatch."""
    await private.announce(update(1, "s", passkey=ALICE))
    private.clock.now += 100
    done = update(1, "c", bytes_left=0, downloaded=1000, uploaded=50, passkey=ALICE)
    for _ in range(3):
        assert (await private.announce(done)).completions == 1
    user = await private.users.find("7")
    assert (user.uploaded, user.downloaded, user.snatches) == (50, 1000, 1)


async def test_scrape_returns_zeros_for_unknown_torrents(store: Store) -> None:
    """T18."""
    await store.announce(update(1, "s", bytes_left=0))
    await store.announce(update(2, "s"))
    await store.announce(update(2, "c", bytes_left=0, downloaded=1))
    await store.announce(update(3, "s", torrent=3))
    await store.torrents.deny(info_hash(3), "no")
    hashes = [info_hash(n) for n in (1, 2, 3)]
    assert await store.swarms.scrape(hashes) == {
        info_hash(1): ScrapeFile(2, 0, 1, 0),
        info_hash(2): ScrapeFile(),
        info_hash(3): ScrapeFile(),
    }
    assert await store.swarms.scrape_all() == {info_hash(1): ScrapeFile(2, 0, 1, 0), info_hash(3): ScrapeFile()}


async def test_counts_are_exact_up_to_the_last_double(private: Store) -> None:
    """T13: 2^53-1 survives Lua."""
    most = 2**53 - 1
    await private.announce(update(1, "s", passkey=ALICE))
    last = update(1, uploaded=most, downloaded=most - 1, bytes_left=most, passkey=ALICE)
    await private.announce(last)
    row = await private.peer(last)
    assert (row["uploaded"], row["downloaded"], row["left"]) == (str(most), str(most - 1), str(most))
    account = await private.redis.hgetall(private.keys.user_torrent(7, 1))
    assert account[b"uploaded"] == str(most).encode()


async def test_top_torrents(store: Store) -> None:
    """T20: the rankings return the first N."""
    for torrent in range(1, 5):
        for peer in range(torrent):
            await store.announce(update(10 * torrent + peer, "s", torrent=torrent))
    top = await store.torrents.top("leechers", 2)
    assert [(t.info_hash, t.leechers) for t in top] == [(InfoHash(info_hash(4)), 4), (InfoHash(info_hash(3)), 3)]


async def test_announces_fail_at_once_while_the_store_is_unavailable(store: Store) -> None:
    store.connection._lost(OSError())
    with pytest.raises(StoreUnavailable):
        await store.swarms.announce(update(1))
    with pytest.raises(StoreUnavailable):
        await store.swarms.scrape([info_hash(1)])
