"""Peers for tests, on loopback: an honest one, and a server for behaviour that no honest peer shows."""

import asyncio
import random
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from hashlib import sha1
from ipaddress import ip_address
from typing import Any

from tracker.bittorrent import Address, Endpoint, InfoHash, PeerId
from tracker.wire.endpoint import pack_endpoint
from tracker.wire.handshake import (
    HANDSHAKE_LENGTH,
    Handshake,
    Kind,
    Message,
    PeerStream,
    encode_handshake,
    encode_message,
)
from tracker.wire.torrent_file import Pieces
from tracker.workers.prober import Prober, Times, has_allowed_port

HASH = InfoHash(b"h" * 20)
PEER = PeerId(b"-XX0001-the peer....")
CONTENT = random.Random(7).randbytes(70 * 40_000 + 12_345)
PIECE_LENGTH = 40_000
"""No multiple of 16 KiB: the last block of each piece is shorter."""
PIECES = Pieces(
    PIECE_LENGTH,
    len(CONTENT),
    b"".join(
        sha1(CONTENT[at : at + PIECE_LENGTH], usedforsecurity=False).digest()
        for at in range(0, len(CONTENT), PIECE_LENGTH)
    ),
)
"""71 pieces: enough for a bitfield to prove that some are missing."""

Behave = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


def loopback(port: int) -> Endpoint:
    return pack_endpoint(Address(ip_address("127.0.0.1").packed), port)


def is_here(endpoint: Endpoint) -> bool:
    """Where probers of tests may connect: to loopback only, whatever address a test announces."""
    return has_allowed_port(endpoint) and ip_address(endpoint[:-2]).is_loopback


def prober(handshake_seconds: float = 60.0, piece: int = 3, piece_seconds: float = 60.0) -> Prober:
    """One that may connect to loopback, and chooses ``piece``."""
    times = Times(60.0, handshake_seconds, piece_seconds)
    return Prober(lambda: True, lambda _: None, randbelow=lambda _: piece, times=times, is_target=is_here)


@asynccontextmanager
async def peer(behave: Behave) -> AsyncIterator[Endpoint]:
    """A server whose connections ``behave``; they are closed when it returns."""
    writers: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await behave(reader, writer)
            await writer.drain()
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield loopback(listener.sockets[0].getsockname()[1])
    finally:
        listener.close()
        for writer in writers:
            writer.transport.abort()
        for writer in writers:
            with suppress(ConnectionError):
                await writer.wait_closed()


async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, fast: bool = True) -> Handshake:
    """Answers the handshake for the same torrent; returns the prober's."""
    stream = PeerStream()
    stream.feed(await reader.readexactly(HANDSHAKE_LENGTH))
    received = stream.handshake()
    assert received is not None
    writer.write(encode_handshake(Handshake(received.info_hash, PEER, fast)))
    return received


async def received(reader: asyncio.StreamReader) -> Message:
    """The next message of the prober."""
    stream = PeerStream()
    while True:
        head = await reader.readexactly(4)
        stream.feed(head + await reader.readexactly(struct.unpack(">I", head)[0]))
        for message in stream.messages():
            return message


def send(writer: asyncio.StreamWriter, *messages: Message) -> None:
    writer.write(b"".join(map(encode_message, messages)))


def block(request: Message) -> Message:
    """The honest answer to a request."""
    at = request.index * PIECE_LENGTH + request.begin
    return Message(Kind.PIECE, request.index, request.begin, data=CONTENT[at : at + request.length])


def seeder(
    *shown: Message, fast: bool = True, answer: Callable[[Message], Message] = block, forever: bool = True
) -> Behave:
    """Sends ``shown`` after its handshake, unchokes whoever is interested, and answers requests."""

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greet(reader, writer, fast=fast)
        send(writer, *shown)
        while forever:
            message = await received(reader)
            if message.kind is Kind.INTERESTED:
                send(writer, Message(Kind.UNCHOKE))
            elif message.kind is Kind.REQUEST:
                send(writer, answer(message))

    return behave


async def says_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Reads until the prober gives up."""
    while await reader.read(65536):
        pass
