"""D6: tokens hold for one address and one torrent, for 5 to 10 minutes."""

from hypothesis import given
from hypothesis import strategies as st

from tracker.bittorrent import Address, InfoHash
from tracker.dht.responder import TOKEN_HASH_LENGTH
from tracker.wire.connection_id import ConnectionIds

TOKENS = ConnectionIds(bytes(range(32)), TOKEN_HASH_LENGTH)
ADDRESS, HASH = Address(b"\1\2\3\4"), InfoHash(b"a" * 20)
times = st.floats(0, 1e9)


@given(times)
def test_a_token_holds_for_five_to_ten_minutes(at: float) -> None:
    token = TOKENS.issue(ADDRESS + HASH, at)
    assert len(token) == 1 + 8
    assert all(TOKENS.is_valid(token, ADDRESS + HASH, at + later) for later in (0, 100, 299))
    assert not TOKENS.is_valid(token, ADDRESS + HASH, at + 601)


@given(times)
def test_it_holds_for_nothing_else(at: float) -> None:
    token = TOKENS.issue(ADDRESS + HASH, at)
    assert not TOKENS.is_valid(token, Address(b"\1\2\3\5") + HASH, at)
    assert not TOKENS.is_valid(token, Address(bytes(16)) + HASH, at)
    assert not TOKENS.is_valid(token, ADDRESS + InfoHash(b"b" * 20), at)
    assert not TOKENS.is_valid(token[:8], ADDRESS + HASH, at)
    assert not ConnectionIds(bytes(32), TOKEN_HASH_LENGTH).is_valid(token, ADDRESS + HASH, at), "after a restart"


@given(st.binary(min_size=1, max_size=64))
def test_a_guess_is_refused(token: bytes) -> None:
    assert not TOKENS.is_valid(token, ADDRESS + HASH, 0)
