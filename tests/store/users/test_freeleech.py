"""Freeleech tokens: a user's download of one torrent does not count until the token ends (row T30)."""

from typing import Any

import pytest

from tests.store.harness import ALICE, BOB, START, Store, info_hash, text, update
from tracker.errors import ClientError
from tracker.store.swarms.codec import JoinedWithMultipliers, PeerUpdate
from tracker.store.users import freeleech
from tracker.store.users.freeleech import Token

END = START + 1000


def alice(peer: int = 1, event: str = "u", torrent: int = 1, **changes: Any) -> PeerUpdate:
    return update(peer, event, torrent, passkey=ALICE, **changes)


async def downloaded(store: Store, peer: int = 1, torrent: int = 1, passkey: str = ALICE) -> int:
    """What 1000 bytes add to the total of the user."""
    before = (await store.users.find(passkey)).downloaded
    await store.announce(update(peer, "s", torrent, passkey=passkey))
    store.clock.now += 10
    await store.announce(update(peer, "u", torrent, passkey=passkey, uploaded=1000, downloaded=1000))
    return (await store.users.find(passkey)).downloaded - before


async def test_a_token_makes_one_torrent_free_for_one_user(private: Store) -> None:
    """T30: upload counts, and so does the download for hit and runs."""
    for torrent in (1, 2):
        await private.torrents.add(info_hash(torrent))
    await private.freeleech.give("7", "1", END)
    assert await downloaded(private) == 0
    assert await downloaded(private, 2, torrent=2) == 1000
    assert await downloaded(private, 3, passkey=BOB) == 1000
    assert (await private.users.find("7")).uploaded == 2000
    assert (await private.users.on_torrents("7", ["1"]))[0]["downloaded"] == "1000"


async def test_a_token_ends(private: Store) -> None:
    await private.torrents.add(info_hash(1))
    await private.freeleech.give("7", "1", END)
    await private.freeleech.give("7", "2", END + 1000)  # so that another one lasts
    private.clock.now = END - 10
    assert await downloaded(private) == 1000
    assert await private.freeleech.page("7") == [Token("2", END + 1000)]
    assert await private.freeleech.count("7") == 1


async def test_a_token_may_have_no_end(private: Store) -> None:
    await private.torrents.add(info_hash(1))
    await private.freeleech.give("7", "2", END)
    await private.freeleech.give("7", "1")
    assert await private.freeleech.page("7") == [Token("2", END), Token("1", None)]
    private.clock.now = 10**11
    assert await downloaded(private) == 0
    assert await private.freeleech.page("7") == [Token("1", None)]
    assert await private.freeleech.take_back("7", "1")


async def test_a_token_is_taken_back_and_its_end_is_changed(private: Store) -> None:
    await private.torrents.add(info_hash(1))
    await private.freeleech.give("7", "1", END)
    await private.freeleech.give("7", "1", END + 5)
    assert await private.freeleech.page("7") == [Token("1", END + 5)]
    assert await private.freeleech.take_back("7", "1")
    assert not await private.freeleech.take_back("7", "1")
    assert await downloaded(private) == 1000
    assert await private.redis.hexists(private.keys.user("7"), "freeleech:1") == 0


async def test_a_start_is_told_of_the_token(private: Store) -> None:
    await private.torrents.add(info_hash(1))
    await private.freeleech.give("7", "1", END)
    joined = await private.announce(alice(event="s"))
    assert isinstance(joined, JoinedWithMultipliers)
    assert (joined.upload_multiplier, joined.download_multiplier) == ("1", "0")


async def test_the_number_of_tokens_is_limited(private: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that have ended do not count."""
    monkeypatch.setattr(freeleech, "MAX_TOKENS", 2)
    for torrent_id in ("1", "2"):
        await private.freeleech.give("7", torrent_id, END)
    with pytest.raises(ClientError, match="a user has at most 2"):
        await private.freeleech.give("7", "3", END)
    await private.freeleech.give("7", "2", END + 5)
    private.clock.now = END
    await private.freeleech.give("7", "3", END + 9)
    assert [token.torrent_id for token in await private.freeleech.page("7")] == ["2", "3"]
    assert await private.freeleech.page("7", 1, 1) == [Token("3", END + 9)]


@pytest.mark.parametrize("until", [0, START, 10**13])
async def test_a_token_ends_in_the_future(private: Store, until: int) -> None:
    with pytest.raises(ClientError, match="in the future"):
        await private.freeleech.give("7", "1", until)


async def test_a_deleted_user_has_no_tokens(private: Store) -> None:
    await private.freeleech.give("7", "1", END)
    await private.users.delete("7")
    assert not await private.redis.exists(private.keys.user_freeleech("7"))
    for change in (private.freeleech.give("7", "1", END), private.freeleech.take_back("7", "1")):
        with pytest.raises(ClientError, match="no such user"):
            await change


async def test_tokens_of_another_type_fail_no_announce(private: Store) -> None:
    await private.torrents.add(info_hash(1))
    await private.redis.set(private.keys.user_freeleech("7"), "x")
    for peer, held in enumerate(("", "x", "-9", "nan", "1e3"), 1):
        await private.redis.hset(private.keys.user("7"), "freeleech:1", held)
        assert await downloaded(private, peer) == 1000


async def test_the_end_of_a_token_is_copied_for_announces(private: Store) -> None:
    """Tokens that have ended leave both places at the next change."""
    for torrent_id in ("1", "2"):
        await private.freeleech.give("7", torrent_id, END)
    private.clock.now = END
    await private.freeleech.give("7", "3", END + 5)
    row = text(await private.redis.hgetall(private.keys.user("7")))
    assert {name: end for name, end in row.items() if name.startswith("freeleech")} == {"freeleech:3": str(END + 5)}
    assert await private.redis.zrange(private.keys.user_freeleech("7"), 0, -1) == [b"3"]
