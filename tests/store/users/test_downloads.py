"""Download counts under any peer ID (row T13): as far as `left` fell. A fall without download is shown, not charged."""

from typing import Any

import pytest

from tests.store.harness import ALICE, Store, text, update
from tracker.store.swarms.codec import PeerUpdate

GB = 10**9
UNKNOWN = [16384, 2**53 - 1, None]


def alice(peer: int = 1, event: str = "s", **changes: Any) -> PeerUpdate:
    return update(peer, event, passkey=ALICE, **changes)


async def account(store: Store) -> dict[str, str]:
    """A 0 may be left out."""
    return {"downloaded": "0"} | text(await store.redis.hgetall(store.keys.user_torrent("7", "1")))


async def figures(store: Store) -> tuple[int, int, int]:
    """(downloaded of the user, on the torrent; unreported)"""
    found = await account(store)
    unreported = await store.redis.hget(store.keys.user("7"), "unreported") or b"0"
    assert max(0, int(found.get("unreported", 0))) == int(unreported)
    return (await store.users.find("7")).downloaded, int(found["downloaded"]), int(unreported)


@pytest.mark.parametrize("event", ["s", "u", "c"])
@pytest.mark.parametrize("ending", ["stop", "none"])
async def test_a_new_peer_id_at_each_announce_hides_no_download(private: Store, event: str, ending: str) -> None:
    """10 GB were once downloaded this way without credit or hit and run."""
    await private.announce(alice(1, bytes_left=10 * GB))
    for peer in range(2, 12):
        if ending == "stop":
            await private.announce(alice(peer - 1, "x", bytes_left=(12 - peer) * GB))
        private.clock.now += 1
        said = {"downloaded": (peer - 1) * GB, "bytes_left": (11 - peer) * GB}
        await private.announce(alice(peer, event, **said))
    assert await figures(private) == (10 * GB, 10 * GB, 0)
    for peer in range(1, 12):
        await private.announce(alice(peer, "x", downloaded=10 * GB, bytes_left=0))
    assert await private.redis.sismember(private.keys.user_set("7", "hnr"), "1")
    assert (await private.users.find("7")).uploaded == 0


async def test_a_new_peer_id_is_charged_no_more_than_left_fell(private: Store) -> None:
    await private.announce(alice(1, bytes_left=5000))
    await private.announce(alice(2, bytes_left=4000, downloaded=3000, uploaded=9000))
    assert await figures(private) == (1000, 1000, 0)
    await private.announce(alice(3, bytes_left=3000, downloaded=400))
    assert await figures(private) == (1400, 1400, 600)
    assert (await private.users.find("7")).uploaded == 0


async def test_the_first_announce_of_a_user_is_not_charged(private: Store) -> None:
    await private.announce(alice(1, bytes_left=0, downloaded=5000))
    assert await figures(private) == (0, 0, 0)


async def test_a_restarted_counter_counts_as_far_as_left_fell(private: Store) -> None:
    """Otherwise a counter that shrinks a little each time would never be charged."""
    await private.announce(alice(1, downloaded=9000, bytes_left=9000))
    for n in range(1, 4):
        private.clock.now += 10
        await private.announce(alice(1, "u", downloaded=9000 - n, bytes_left=9000 - 3000 * n))
    assert await figures(private) == (9000, 9000, 0)


@pytest.mark.parametrize("unknown", UNKNOWN)
async def test_an_unknown_left_has_no_fall(private: Store, unknown: int | None) -> None:
    """Clients without a torrent's metadata send 16384, the maximum, or nothing."""
    await private.announce(alice(1, bytes_left=unknown))
    await private.announce(alice(2, bytes_left=0, downloaded=7000))
    assert await figures(private) == (0, 0, 0)


@pytest.mark.parametrize("unknown", UNKNOWN)
async def test_an_unknown_left_between_two_that_are_known_hides_nothing(private: Store, unknown: int | None) -> None:
    """WebTorrent's `stopped` sends 16384 for a torrent that it had."""
    await private.announce(alice(1, bytes_left=7000))
    await private.announce(alice(2, bytes_left=unknown, downloaded=5000))
    assert await figures(private) == (0, 0, 0)
    await private.announce(alice(3, bytes_left=1000, downloaded=6000))
    assert await figures(private) == (6000, 6000, 0)


async def test_a_magnet_that_learns_its_size_and_downloads_is_charged_once(private: Store) -> None:
    await private.announce(alice(1, bytes_left=16384))
    private.clock.now += 10
    await private.announce(alice(1, "u", bytes_left=8000, downloaded=100))
    private.clock.now += 10
    await private.announce(alice(1, "c", bytes_left=0, downloaded=8100))
    assert await figures(private) == (8100, 8100, 0)


@pytest.mark.parametrize("peer", [1, 2])
async def test_a_fall_without_download_is_counted_and_not_charged(private: Store, peer: int) -> None:
    """Cross-seeding and rechecks look so, under the same peer ID and under another."""
    await private.announce(alice(1, bytes_left=7000))
    private.clock.now += 10
    await private.announce(alice(peer, "u", bytes_left=0))
    assert await figures(private) == (0, 0, 7000)
    await private.announce(alice(peer, "x", bytes_left=0))
    assert not await private.redis.sismember(private.keys.user_set("7", "hnr"), "1")


async def test_pieces_reported_before_they_were_complete_are_no_unreported_fall(private: Store) -> None:
    await private.announce(alice(1, bytes_left=9000))
    for downloaded, left in ((1500, 8000), (2000, 7000), (9500, 0)):
        private.clock.now += 10
        await private.announce(alice(1, "u", downloaded=downloaded, bytes_left=left))
    assert await figures(private) == (9500, 9500, 0)


async def test_a_second_client_that_seeds_is_no_fall_of_the_first(private: Store) -> None:
    await private.announce(alice(1, bytes_left=0))
    await private.announce(alice(2, bytes_left=7000))
    for n in range(1, 4):
        private.clock.now += 10
        await private.announce(alice(1, "u", bytes_left=0))
        await private.announce(alice(2, "u", bytes_left=7000 - 1000 * n, downloaded=1000 * n))
    assert await figures(private) == (3000, 3000, 0)
    await private.announce(alice(3, bytes_left=0, downloaded=4000))
    assert await figures(private) == (7000, 7000, 0), "the seeder's 0 is not what was left"


async def test_the_last_left_is_kept_with_the_account(private: Store) -> None:
    await private.announce(alice(1, bytes_left=7000))
    assert (await account(private))["left"] == "7000"
    await private.announce(alice(1, "x", bytes_left=6000))
    assert (await account(private))["left"] == "6000"


@pytest.mark.parametrize("held", ["many", "-5", "inf", "nan", "9" * 30, ""])
async def test_an_invalid_stored_left_charges_nothing(private: Store, held: str) -> None:
    await private.announce(alice(1, bytes_left=7000))
    await private.redis.hset(private.keys.user_torrent("7", "1"), mapping={"left": held, "unreported": "many"})
    assert (await private.announce(alice(2, bytes_left=0, downloaded=7000))).outcome == "join"
    assert (await account(private))["downloaded"] == "0"
