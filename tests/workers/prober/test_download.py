"""The download of one piece: which blocks are requested, and that any order of blocks gives the hash of the piece."""

import random
from hashlib import sha1

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.errors import PeerProtocolError
from tracker.wire.handshake import BLOCK_LENGTH, Kind, Message
from tracker.wire.torrent_file import Piece
from tracker.workers.prober import MAX_UNCHOKES, Download

CHOKE, UNCHOKE = Message(Kind.CHOKE), Message(Kind.UNCHOKE)
INDEX = 5
CONTENT = bytes(range(251)) * 4000
"""61 blocks and a part of one."""


def download(length: int, content: bytes = CONTENT) -> Download:
    return Download(Piece(INDEX, length, sha1(content[:length], usedforsecurity=False).digest()))


def block(request: Message) -> Message:
    data = CONTENT[request.begin : request.begin + request.length]
    return Message(Kind.PIECE, request.index, request.begin, data=data)


@given(st.integers(1, len(CONTENT)), st.randoms(use_true_random=False), st.floats(0, 0.3))
def test_blocks_in_any_order_over_chokes_give_the_piece(length: int, chance: random.Random, choked: float) -> None:
    fetching, waiting, most = download(length), list[Message](), 0
    unchokes = 0
    while not fetching.is_complete:
        if fetching.choked:
            fetching.receive(UNCHOKE)
            unchokes += 1
        waiting += fetching.requests()
        most = max(most, len(waiting))
        fetching.receive(block(waiting.pop(chance.randrange(len(waiting)))))
        if unchokes < MAX_UNCHOKES and chance.random() < choked:
            fetching.receive(CHOKE)
            waiting.clear()
    assert fetching.is_correct and most <= 8


def test_only_what_was_requested_counts() -> None:
    fetching = download(3 * BLOCK_LENGTH)
    fetching.receive(block(Message(Kind.REQUEST, INDEX, 0, BLOCK_LENGTH)))  # before any request
    fetching.receive(UNCHOKE)
    first, second, third = fetching.requests()
    fetching.receive(Message(Kind.PIECE, INDEX + 1, 0, data=bytes(BLOCK_LENGTH)))
    fetching.receive(Message(Kind.PIECE, INDEX, 1, data=bytes(BLOCK_LENGTH)))
    fetching.receive(Message(Kind.PIECE, INDEX, 3 * BLOCK_LENGTH, data=b"beyond"))
    fetching.receive(block(second))
    fetching.receive(Message(Kind.PIECE, INDEX, second.begin, data=bytes(BLOCK_LENGTH)))  # repeated
    fetching.receive(block(first))
    fetching.receive(Message(Kind.PIECE, INDEX, first.begin, data=bytes(BLOCK_LENGTH)))
    before = fetching.is_complete
    fetching.receive(block(third))
    assert (before, fetching.is_complete, fetching.is_correct) == (False, True, True)


def test_a_wrong_byte_gives_another_hash() -> None:
    fetching = download(BLOCK_LENGTH + 1)
    fetching.receive(UNCHOKE)
    first, last = fetching.requests()
    fetching.receive(block(first))
    fetching.receive(Message(Kind.PIECE, INDEX, last.begin, data=b"\xff"))
    assert fetching.is_complete and not fetching.is_correct


def test_nothing_is_requested_while_choked() -> None:
    fetching = download(BLOCK_LENGTH)
    assert fetching.requests() == []
    fetching.receive(UNCHOKE)
    assert fetching.requests() == [Message(Kind.REQUEST, INDEX, 0, BLOCK_LENGTH)]
    assert fetching.requests() == []
    fetching.receive(UNCHOKE)
    assert fetching.requests() == [], "it was not choked in between"
    fetching.receive(CHOKE)
    assert fetching.requests() == []
    fetching.receive(UNCHOKE)
    assert len(fetching.requests()) == 1


def test_a_choked_peer_may_reject() -> None:
    fetching = download(BLOCK_LENGTH)
    reject = Message(Kind.REJECT, INDEX, 0, BLOCK_LENGTH)
    fetching.receive(reject)
    fetching.receive(UNCHOKE)
    fetching.receive(Message(Kind.REJECT, INDEX + 1, 0, BLOCK_LENGTH))
    with pytest.raises(PeerProtocolError, match="rejected"):
        fetching.receive(reject)
