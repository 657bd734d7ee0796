"""The maximum credit of a user: a rate, per torrent and in total (row T13)."""

import asyncio
from typing import Any

import pytest

from loadtest.invariants import check_invariants
from tests.store.conftest import MakeStore
from tests.store.harness import ALICE, BOB, START, Store, info_hash, text, update
from tracker.store.swarms.codec import PeerUpdate

RATE, USER_RATE = 100, 250
EXACT = 2**53 - 1


@pytest.fixture
async def limited(make_store: MakeStore) -> Store:
    """100 bytes a second per torrent, 250 a second in total, accumulated over at most 1000 s."""
    store = await make_store(
        accounts="required", peer_memory=100_000, max_credit=RATE, max_user_credit=USER_RATE, credit_saved=1000
    )
    await store.users.add("7", ALICE)
    await store.users.add("8", BOB)
    return store


def alice(peer: int = 1, event: str = "u", **changes: Any) -> PeerUpdate:
    return update(peer, event, passkey=ALICE, **changes)


async def uploaded(store: Store, user_id: str = "7") -> int:
    return (await store.users.find(user_id)).uploaded


async def account(store: Store, torrent_id: str = "1") -> dict[str, str]:
    return text(await store.redis.hgetall(store.keys.user_torrent("7", torrent_id)))


@pytest.mark.parametrize("together", [False, True])
async def test_three_hundred_announces_within_a_tenth_of_a_second_earn_what_the_rate_allows(
    limited: Store, together: bool
) -> None:
    """Each of them once earned a second's worth: 40.3 GB in 0.09 s."""
    await limited.announce(alice(event="s"))
    limited.clock.now += 0.09
    claims = [alice(uploaded=n * RATE) for n in range(1, 301)]
    if together:
        await asyncio.gather(*map(limited.announce, claims))
    else:
        for claim in claims:
            await limited.announce(claim)
    assert await uploaded(limited) <= RATE * 0.09
    assert int(await limited.redis.get(limited.keys.stat("credit_cut"))) >= 299 * RATE


async def test_a_seedbox_of_ten_gigabits_is_credited_in_full(make_store: MakeStore) -> None:
    """With the default limits: 8.06 of 60 GB once, in one minute."""
    store = await make_store(accounts="required", peer_memory=3600)
    await store.users.add("7", ALICE)
    await store.announce(alice(event="s"))
    store.clock.now += 60
    await store.announce(alice(uploaded=60 * 10**9))
    user = await store.users.find("7")
    assert (user.uploaded, user.credit_cut) == (60 * 10**9, 0)


async def cuts(store: Store) -> tuple[int, ...]:
    """What was cut of user 7 in total, on torrents 1 and 2, and of all users."""
    held = [
        await store.redis.hget(store.keys.user("7"), "credit_cut"),
        *[await store.redis.hget(store.keys.user_torrent("7", tid), "credit_cut") for tid in ("1", "2")],
        await store.redis.get(store.keys.stat("credit_cut")),
    ]
    return tuple(int(number or 0) for number in held)


async def test_what_is_cut_is_counted_exactly_by_user_and_torrent(limited: Store) -> None:
    """Credit and cut add up to the reported bytes times the multiplier, rounded down."""
    for torrent in (1, 2):
        await limited.announce(alice(event="s", torrent=torrent))
    await limited.redis.hset(limited.keys.torrent(info_hash(2)), "multi_up", "1.5")
    limited.clock.now += 10
    await limited.announce(alice(uploaded=900, downloaded=1000))
    assert await cuts(limited) == (0, 0, 0, 0)
    await limited.announce(alice(torrent=2, uploaded=2001, downloaded=1700))
    assert await cuts(limited) == (2001 + 700, 0, 2001 + 700, 2001 + 700)
    limited.clock.now += 10
    await limited.announce(alice(uploaded=900 + 5000, downloaded=1000))
    user = await limited.users.find("7")
    assert (user.uploaded, user.downloaded) == (900 + 1000 + 1000, 1000 + 1000)
    assert await cuts(limited) == (6701, 4000, 2701, 6701) and user.credit_cut == 6701
    assert (await account(limited))["uploaded"] == "5900"


@pytest.mark.parametrize("held", ["many", "-5", str(EXACT), "9" * 30])
async def test_an_invalid_or_full_count_of_cuts_fails_no_announce(limited: Store, held: str) -> None:
    await limited.announce(alice(event="s"))
    for key in (limited.keys.user("7"), limited.keys.user_torrent("7", "1")):
        await limited.redis.hset(key, "credit_cut", held)
    limited.clock.now += 10
    assert (await limited.announce(alice(uploaded=1001))).outcome == "update"
    assert await uploaded(limited) == 1000
    assert all(abs(cut) <= EXACT for cut in await cuts(limited))
    assert (await limited.users.find("7")).credit_cut >= 0


async def test_many_peers_of_a_user_on_a_torrent_share_one_rate(limited: Store) -> None:
    for peer in range(1, 51):
        await limited.announce(alice(peer, "s"))
    limited.clock.now += 10
    for peer in range(1, 51):
        await limited.announce(alice(peer, uploaded=EXACT))
    assert await uploaded(limited) == 10 * RATE
    assert (await account(limited))["credited"] == str((START + 10) * 1000)


async def test_two_peers_of_a_user_share_the_accumulated_credit(limited: Store) -> None:
    """The peer that announces a second later loses nothing while both together stay below the rate."""
    for peer in (1, 2):
        await limited.announce(alice(peer, "s"))
    limited.clock.now += 99
    await limited.announce(alice(1, uploaded=4000))
    limited.clock.now += 1
    await limited.announce(alice(2, uploaded=5000))
    assert await uploaded(limited) == 9000


async def test_started_credits_no_upload_for_an_absence(limited: Store) -> None:
    """Neither do the announces after it."""
    await limited.announce(alice(event="s"))
    limited.clock.now += 10
    await limited.announce(alice(event="x", uploaded=500))
    limited.clock.now += 50_000
    await limited.announce(alice(event="s", uploaded=500 + 50_000 * RATE))
    assert await uploaded(limited) == 500
    limited.clock.now += 1
    await limited.announce(alice(uploaded=EXACT))
    assert await uploaded(limited) == 500 + RATE
    assert (await account(limited))["uploaded"] == str(min(EXACT, 500 + EXACT - 500 - 50_000 * RATE))


async def test_started_during_a_session_credits_no_upload(limited: Store) -> None:
    await limited.announce(alice(event="s"))
    limited.clock.now += 100
    await limited.announce(alice(event="s", uploaded=100))
    limited.clock.now += 1
    await limited.announce(alice(uploaded=130))
    assert await uploaded(limited) == 30


async def test_an_update_by_a_remembered_peer_is_credited(limited: Store) -> None:
    """It was reaped while its client went on: the tracker was unavailable, or announces were lost."""
    await limited.announce(alice(event="s"))
    assert await limited.silence(alice()) == 1
    limited.clock.now += 5000
    await limited.announce(alice(uploaded=4321))
    assert await uploaded(limited) == 4321


async def test_a_stop_of_a_remembered_peer_is_credited_once(limited: Store) -> None:
    """As an update of it. It does not come back into the swarm, nor does it leave a second time."""
    await limited.announce(alice(event="s"))
    assert await limited.silence(alice()) == 1
    before = await account(limited)
    limited.clock.now += 5000
    for _ in range(2):
        reply = await limited.announce(alice(event="x", uploaded=4321, downloaded=5))
        assert (reply.outcome, reply.seeders + reply.leechers) == ("absent", 0)
    assert await uploaded(limited) == 4321
    after = await account(limited)
    assert (after["uploaded"], after["downloaded"]) == ("4321", "5")
    assert after.get("peers") == before.get("peers")
    assert await check_invariants(limited.redis, limited.keys) == 0


@pytest.mark.parametrize("event", ["s", "u"])
async def test_a_new_peer_id_accumulates_no_credit_for_an_absence(limited: Store, event: str) -> None:
    await limited.announce(alice(event="s"))
    await limited.announce(alice(event="x"))
    limited.clock.now += 50_000
    await limited.announce(alice(2, event))
    limited.clock.now += 2
    await limited.announce(alice(2, uploaded=EXACT))
    assert await uploaded(limited) == 2 * RATE


async def test_the_current_rate_applies(limited: Store) -> None:
    await limited.announce(alice(event="s"))
    limited.clock.now += 10
    await limited.announce(alice(uploaded=10 * RATE))
    slower = limited.rules.current.__class__(
        accounts="required", peer_memory=3600, max_credit=10, max_user_credit=USER_RATE, credit_saved=1000
    )
    limited.rules.current = slower
    limited.clock.now += 10
    await limited.announce(alice(uploaded=EXACT))
    assert await uploaded(limited) == 10 * RATE + 10 * 10


async def test_all_torrents_of_a_user_share_a_rate(limited: Store) -> None:
    """Unused credit accumulates for two intervals."""
    torrents = range(1, 31)
    for torrent in torrents:
        await limited.announce(alice(torrent=torrent, event="s"))
    limited.clock.now += 5000
    for torrent in torrents:
        await limited.announce(alice(torrent=torrent, uploaded=EXACT))
    assert await uploaded(limited) == 1000 * USER_RATE
    for torrent in torrents:
        await limited.announce(alice(torrent=torrent, event="s"))
    limited.clock.now += 10
    for torrent in torrents:
        await limited.announce(alice(torrent=torrent, uploaded=EXACT))
    assert await uploaded(limited) == 1010 * USER_RATE
    await limited.announce(update(1, "s", passkey=BOB, torrent=40))
    limited.clock.now += 10
    await limited.announce(update(1, passkey=BOB, torrent=40, uploaded=700))
    assert await uploaded(limited, "8") == 700, "another user has a rate of their own"


async def test_the_rate_applies_to_upload_and_download(limited: Store) -> None:
    await limited.announce(alice(event="s"))
    limited.clock.now += 10
    await limited.announce(alice(uploaded=10 * RATE, downloaded=10 * RATE))
    user = await limited.users.find("7")
    assert (user.uploaded, user.downloaded) == (10 * RATE, 10 * RATE)


async def test_an_older_account_has_credit_since_its_peer_announced(limited: Store) -> None:
    await limited.announce(alice(event="s"))
    await limited.redis.hdel(limited.keys.user_torrent("7", "1"), "credited")
    limited.clock.now += 10
    await limited.announce(alice(uploaded=EXACT))
    assert await uploaded(limited) == 10 * RATE


@pytest.mark.parametrize("held", ["many", "nan", "inf", "-inf", "9" * 30, "", "-5", "1e300"])
async def test_invalid_times_add_no_credit(limited: Store, held: str) -> None:
    await limited.announce(alice(event="s"))
    await limited.redis.hset(limited.keys.user_torrent("7", "1"), "credited", held)
    await limited.redis.hset(limited.keys.user("7"), mapping={"credited_up": held, "credited_down": held})
    limited.clock.now += 10
    await limited.announce(alice(uploaded=EXACT, downloaded=EXACT))
    user = await limited.users.find("7")
    assert (user.uploaded, user.downloaded) == (10 * RATE, 10 * RATE)


async def test_a_clock_step_back_credits_nothing_twice(limited: Store) -> None:
    await limited.announce(alice(event="s"))
    limited.clock.now += 100
    await limited.announce(alice(uploaded=100 * RATE))
    limited.clock.now -= 3
    await limited.announce(alice(uploaded=200 * RATE))
    limited.clock.now += 3
    await limited.announce(alice(uploaded=300 * RATE))
    assert await uploaded(limited) == 100 * RATE


async def test_multiplied_bytes_count_up_to_the_rate(limited: Store) -> None:
    await limited.announce(alice(event="s"))
    await limited.redis.hset(limited.keys.torrent(info_hash(1)), "multi_up", "3")
    limited.clock.now += 10
    await limited.announce(alice(uploaded=200))
    limited.clock.now += 10
    await limited.announce(alice(uploaded=900))
    assert await uploaded(limited) == 600 + 10 * RATE
    assert await limited.redis.get(limited.keys.stat("credit_cut")) == b"1100"


async def all_upload_without_limit(store: Store, *peers: int) -> int:
    """What the user has been credited after that."""
    for peer in peers:
        await store.announce(alice(peer, uploaded=EXACT))
    return await uploaded(store)


async def test_a_long_gap_is_credited_as_long_as_it_was(limited: Store) -> None:
    """Also where it is longer than the time for which unused credit accumulates."""
    await limited.announce(alice(event="s"))
    limited.clock.now += 2000
    assert await all_upload_without_limit(limited, 1) == 2000 * RATE


async def test_credit_that_peers_share_accumulates_for_a_limited_time(limited: Store) -> None:
    """Each peer announces within that time; the account on the torrent has been idle for longer."""
    peers = (1, 2, 3)
    for peer in peers:
        await limited.announce(alice(peer, "s"))
    limited.clock.now += 2000
    for peer in peers:
        await limited.announce(alice(peer))
    limited.clock.now += 600
    assert await all_upload_without_limit(limited, *peers) == 1000 * RATE


@pytest.mark.parametrize(
    ("peer", "event", "seconds"),
    [
        pytest.param(1, "s", 10, id="a known peer that starts"),
        pytest.param(4, "u", 10, id="an unknown peer that goes on"),
        pytest.param(4, "s", 10, id="an unknown peer that starts"),
        pytest.param(1, "u", 10 * 3, id="a known peer that goes on was never absent"),
    ],
)
async def test_peers_after_an_absence_share_no_credit_of_the_absence(
    limited: Store, peer: int, event: str, seconds: int
) -> None:
    await limited.announce(alice(1, "s"))
    if (peer, event) == (1, "u"):
        await limited.silence(alice(1))
    else:
        await limited.announce(alice(1, "x"))
    limited.clock.now += 900
    await limited.announce(alice(peer, event))
    for other in (2, 3):
        await limited.announce(alice(other, "s"))
    limited.clock.now += 10
    assert await all_upload_without_limit(limited, peer, 2, 3) == seconds * RATE


async def test_a_further_peer_takes_no_credit_from_one_that_goes_on(limited: Store) -> None:
    await limited.announce(alice(1, "s"))
    limited.clock.now += 900
    await limited.announce(alice(2, "s"))
    limited.clock.now += 10
    assert await all_upload_without_limit(limited, 1) == 910 * RATE
