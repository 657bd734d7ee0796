"""What a probe concludes from the behaviour of peers, over real sockets. None is called a liar without a proof.

W25: a peer that only announces fails; one that cannot be checked is never called a liar.
"""

import asyncio
import socket
import struct
from collections.abc import Callable

import pytest
import uvloop

from tests.waiting import in_background, loop_turns
from tests.workers.prober.peers import (
    HASH,
    PEER,
    PIECES,
    Behave,
    block,
    greet,
    peer,
    prober,
    received,
    says_nothing,
    seeder,
    send,
)
from tracker.bittorrent import InfoHash, PeerId
from tracker.wire.handshake import BLOCK_LENGTH, Handshake, Kind, Message, encode_handshake, encode_message
from tracker.wire.torrent_file import Pieces
from tracker.workers.prober import MAX_HIDDEN_PIECES, Connection, Examination, Level, Status

ALL, NONE = Message(Kind.HAVE_ALL), Message(Kind.HAVE_NONE)
UNKNOWN = Status.UNKNOWN


def bitfield(*missing: int) -> Message:
    bits = sum(1 << (71 - index) for index in range(71) if index not in missing)
    return Message(Kind.BITFIELD, data=bits.to_bytes(9, "big"))


async def outcome(
    behave: Behave, level: Level = Level.HANDSHAKE, *, pieces: Pieces | None = PIECES, piece: int = 3
) -> Status:
    async with peer(behave) as endpoint:
        return await prober(piece=piece).check(endpoint, HASH, level, pieces)


async def outcome_in_silence(behave: Behave, level: Level = Level.HANDSHAKE) -> Status:
    """When the time ends after both sides have said all. What one writes into a pair of sockets, the other one can
    read at once, so some turns of the loop are enough."""
    ours, theirs = [await asyncio.open_connection(sock=end) for end in socket.socketpair()]
    limit, piece = asyncio.timeout(None), PIECES.piece(3) if level is Level.PIECE else None
    examination = Examination(HASH, PeerId(b"-SK0001-" + bytes(12)), PIECES, piece)
    async with in_background(behave(*theirs)), asyncio.TaskGroup() as tasks:
        found = tasks.create_task(examination.run(Connection(*ours), limit, 3600.0))
        await loop_turns(200)
        limit.reschedule(0)
    for _, writer in (ours, theirs):
        writer.close()
        await writer.wait_closed()
    return found.result()


class TestHandshake:
    async def test_a_peer_that_answers_for_the_torrent_is_confirmed(self) -> None:
        found = await outcome(seeder(forever=False), pieces=None)
        assert found is Status.CONFIRMED

    async def test_a_handshake_in_single_bytes_is_read(self) -> None:
        async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            for byte in encode_handshake(Handshake(HASH, PEER)) + encode_message(bitfield()):
                writer.write(bytes((byte,)))
                await writer.drain()
                await asyncio.sleep(0)
            await says_nothing(reader, writer)

        assert await outcome(behave) is Status.CONFIRMED

    async def test_our_handshake_supports_the_fast_extension_and_shows_no_pieces(self) -> None:
        heard: list[object] = []

        async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heard.append(await greet(reader, writer))
            heard.append(await received(reader))
            send(writer, ALL)

        assert await outcome(behave) is Status.CONFIRMED
        handshake, message = heard
        assert isinstance(handshake, Handshake) and (handshake.info_hash, handshake.fast) == (HASH, True)
        assert handshake.peer_id.startswith(b"-SK0001-") and message == NONE

    @pytest.mark.parametrize(
        "answer",
        [
            b"",
            encode_handshake(Handshake(HASH, PEER))[:40],
            bytes(range(96)),
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            encode_handshake(Handshake(InfoHash(b"i" * 20), PEER)),
        ],
        ids=["closes", "closes half-way", "encrypted", "http", "other torrent"],
    )
    @pytest.mark.parametrize("level", list(Level))
    async def test_a_missing_handshake_proves_nothing(self, answer: bytes, level: Level) -> None:
        async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readexactly(68)
            writer.write(answer)

        assert await outcome(behave, level) is UNKNOWN

    async def test_a_service_that_echoes_is_not_confirmed(self) -> None:
        async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(1000):
                writer.write(data)

        assert await outcome(behave, pieces=None) is UNKNOWN

    async def test_a_silent_peer_takes_its_time_and_no_more(self) -> None:
        assert await outcome_in_silence(says_nothing) is UNKNOWN


class TestShownPieces:
    @pytest.mark.parametrize(
        "shown",
        [
            [ALL],
            [bitfield()],
            [bitfield(3, 70), Message(Kind.HAVE, 70), Message(Kind.HAVE, 3)],
            [Message(Kind.UNCHOKE), ALL],
        ],
        ids=["have-all", "bitfield", "lazy bitfield", "unchoked first"],
    )
    async def test_a_peer_that_shows_all_is_confirmed(self, shown: list[Message]) -> None:
        assert await outcome(seeder(*shown)) is Status.CONFIRMED

    @pytest.mark.parametrize("level", list(Level))
    async def test_a_bitfield_that_misses_too_many_pieces_is_a_lie(self, level: Level) -> None:
        missing = range(MAX_HIDDEN_PIECES + 1)
        found = await outcome(seeder(bitfield(*missing)), level)
        assert found is Status.LIED

    @pytest.mark.parametrize(
        "shown",
        [
            [bitfield(*range(MAX_HIDDEN_PIECES))],
            [NONE, Message(Kind.HAVE, 3)],
            [bitfield(*range(71)), Message(Kind.HAVE, 3)],
            [NONE],
            [],
        ],
        ids=["lazy bitfield", "super-seeder", "super-seeder with bitfield", "none", "silent"],
    )
    async def test_a_peer_that_may_hide_pieces_is_no_liar(self, shown: list[Message]) -> None:
        assert await outcome_in_silence(seeder(*shown)) is UNKNOWN

    async def test_a_peer_that_closes_after_its_handshake_is_no_liar(self) -> None:
        async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await greet(reader, writer)
            await received(reader)

        assert await outcome(behave) is UNKNOWN


class TestPiece:
    @pytest.mark.parametrize("fast", [True, False])
    @pytest.mark.parametrize("piece", [0, 3, 70], ids=["first", "middle", "short last one"])
    async def test_a_random_piece_with_the_right_hash_confirms(self, fast: bool, piece: int) -> None:
        shown = ALL if fast else bitfield()
        found = await outcome(seeder(shown, fast=fast), Level.PIECE, piece=piece)
        assert found is Status.CONFIRMED

    async def test_a_piece_of_another_content_is_a_lie(self) -> None:
        def wrong(request: Message) -> Message:
            return Message(Kind.PIECE, request.index, request.begin, data=bytes(request.length))

        found = await outcome(seeder(ALL, answer=wrong), Level.PIECE)
        assert found is Status.LIED

    async def test_blocks_in_any_order_and_over_a_choke_make_the_piece(self) -> None:
        async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await greet(reader, writer)
            send(writer, ALL, Message(Kind.UNCHOKE))
            assert [(await received(reader)).kind for _ in range(2)] == [Kind.HAVE_NONE, Kind.INTERESTED]
            requests = [await received(reader) for _ in range(3)]
            rejected = [Message(Kind.REJECT, each.index, each.begin, each.length) for each in requests]
            send(writer, block(requests[2]), Message(Kind.CHOKE), *rejected[:2], Message(Kind.UNCHOKE))
            again = [await received(reader) for _ in range(2)]
            assert again == requests[:2], "the block that came is not requested again"
            send(writer, *map(block, reversed(again)))
            await says_nothing(reader, writer)

        assert await outcome(behave, Level.PIECE) is Status.CONFIRMED

    @pytest.mark.parametrize(
        "shown",
        [[ALL], [ALL, Message(Kind.UNCHOKE)], [bitfield(3), Message(Kind.UNCHOKE)], [NONE, Message(Kind.UNCHOKE)]],
        ids=["never unchokes", "never sends", "hides the piece", "shows nothing"],
    )
    async def test_a_peer_that_sends_nothing_is_no_liar(self, shown: list[Message]) -> None:
        async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await greet(reader, writer)
            send(writer, *shown)
            await says_nothing(reader, writer)

        assert await outcome_in_silence(behave, Level.PIECE) is UNKNOWN

    @pytest.mark.parametrize(
        "answer",
        [
            lambda each: Message(Kind.REJECT, each.index, each.begin, each.length),
            lambda each: Message(Kind.PIECE, each.index, each.begin, data=b"short"),
        ],
        ids=["rejects", "short blocks"],
    )
    async def test_a_refusal_is_no_lie(self, answer: object) -> None:
        behave = seeder(ALL, answer=answer)  # type: ignore[arg-type]  # a lambda
        assert await outcome(behave, Level.PIECE) is UNKNOWN

    async def test_handshake_and_piece_have_time_limits_of_their_own(self) -> None:
        """Else this test would take a minute."""
        async with peer(says_nothing) as endpoint:
            found = await prober(0.01).check(endpoint, HASH, Level.PIECE, PIECES)
        assert found is UNKNOWN
        async with peer(seeder(ALL, answer=lambda _: Message(Kind.CANCEL))) as endpoint:
            found = await prober(piece_seconds=0.01).check(endpoint, HASH, Level.PIECE, PIECES)
        assert found is UNKNOWN

    async def test_a_download_that_stands_still_ends(self) -> None:
        answers_nothing = seeder(ALL, answer=lambda _: Message(Kind.CANCEL))
        assert await outcome_in_silence(answers_nothing, Level.PIECE) is UNKNOWN

    async def test_a_slow_piece_is_no_lie(self) -> None:
        sent: list[Message] = []

        async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await greet(reader, writer)
            send(writer, ALL, Message(Kind.UNCHOKE))
            while not sent:
                request = await received(reader)
                if request.kind is Kind.REQUEST:
                    send(writer, block(request))
                    sent.append(request)
            await says_nothing(reader, writer)

        found = await outcome_in_silence(behave, Level.PIECE)
        assert sent and found is UNKNOWN


class TestHostilePeers:
    """Each ends by itself, long before the time limit."""

    @pytest.mark.parametrize("level", list(Level))
    @pytest.mark.parametrize(
        "chunk",
        [
            bytes(4),
            encode_message(Message(Kind.UNCHOKE)),
            encode_message(Message(Kind.HAVE, 5)),
            encode_message(Message(Kind.PIECE, 9, 0, data=bytes(BLOCK_LENGTH))),
            b"\0\0\x40\0\x14" + bytes(0x3FFF),
            b"\xff",
            struct.pack(">I", 2**31),
            encode_message(NONE),
            encode_message(Message(Kind.HAVE, 71)),
            encode_message(Message(Kind.BITFIELD, data=b"\xff" * 9)),
            b"\0\0\0\2\0\0",
        ],
        ids=[
            "keep-alives",
            "unchokes",
            "haves",
            "unrequested blocks",
            "extended messages",
            "garbage",
            "huge length",
            "restates",
            "piece out of range",
            "spare bits",
            "short message",
        ],
    )
    async def test_endless_and_malformed_bytes_are_cut_off(self, chunk: bytes, level: Level) -> None:
        async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await greet(reader, writer)
            while True:
                writer.write(chunk * (1 + 65536 // len(chunk)))
                await writer.drain()

        assert await outcome(behave, level) is UNKNOWN

    async def test_chokes_without_end_are_cut_off(self) -> None:
        async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await greet(reader, writer)
            send(writer, ALL)
            while True:
                send(writer, *[Message(Kind.UNCHOKE), Message(Kind.CHOKE)] * 100)
                await writer.drain()

        assert await outcome(behave, Level.PIECE) is UNKNOWN

    async def test_a_reset_is_no_lie(self) -> None:
        async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readexactly(68)
            writer.transport.abort()

        assert await outcome(behave) is UNKNOWN

    @pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
    def test_a_connection_lost_before_we_write_is_an_error_of_the_peer(
        self, loop: Callable[[], asyncio.AbstractEventLoop]
    ) -> None:
        async def write() -> None:
            async with peer(says_nothing) as endpoint:
                port = int.from_bytes(endpoint[-2:], "big")
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.transport.abort()
                await loop_turns(5)
                with pytest.raises(ConnectionError):
                    await Connection(reader, writer).send(b"x")

        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(write())
