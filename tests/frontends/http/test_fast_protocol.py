"""What the door keeps and what it hands on; that both servers of the port answer alike is shown by all the other tests here,
which are done with it and without it."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.frontends.harness import (
    ANNOUNCE,
    PATIENCE,
    QUERY,
    Client,
    RecordingTracker,
    Response,
    connect,
    on_loops,
    request,
    serving,
)
from tracker.errors import ClientError
from tracker.frontends import connection as aiohttp_side


class Watched:
    """Counts the connections that became aiohttp's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.handed_over = 0
        made = aiohttp_side.Server.connection_made

        def connection_made(
            server: aiohttp_side.Server, handler: aiohttp_side.Connection, transport: asyncio.Transport
        ) -> None:
            self.handed_over += 1
            made(server, handler, transport)

        monkeypatch.setattr(aiohttp_side.Server, "connection_made", connection_made)


@pytest.fixture
def watched(way: str, monkeypatch: pytest.MonkeyPatch) -> Watched:
    if way != "door":
        pytest.skip("there is no door")
    return Watched(monkeypatch)


@contextlib.asynccontextmanager
async def talking(tracker: RecordingTracker, **http: Any) -> AsyncIterator[Client]:
    async with serving(tracker, **http) as address, connect(address) as client:
        yield client


@on_loops()
async def test_plain_announces_never_get_to_aiohttp(watched: Watched) -> None:
    tracker = RecordingTracker()
    async with talking(tracker) as client:
        for target in (ANNOUNCE, f"/0123abcd/announce?{QUERY}", "/announce?info_hash=short"):
            for lines in ([], ["User-Agent: Transmission/3.00"], ["Accept: */*", "Accept-Encoding: gzip"]):
                await client.get(target, *lines)
    assert [passkey for _, passkey, _ in tracker.announces] == [None] * 3 + ["0123abcd"] * 3
    assert watched.handed_over == 0


@on_loops()
async def test_an_announce_in_pieces_is_put_together(watched: Watched) -> None:
    async with talking(RecordingTracker()) as client:
        for _ in range(2):
            for byte in request(ANNOUNCE):
                client.send(bytes([byte]))
                await asyncio.sleep(0)
            assert (await client.receive()).reply[b"peers"] == b""
    assert watched.handed_over == 0


@on_loops()
@pytest.mark.parametrize(
    "other",
    [
        request("/scrape"),
        request("/health"),
        request("/announce"),
        request(ANNOUNCE, method="POST"),
        request(ANNOUNCE) * 2,
        request(ANNOUNCE, "Content-Length: 0"),
        request(ANNOUNCE.replace("info_hash=", "info_hash=\xff")),
        request(f"/a%2Fb/announce?{QUERY}"),
        request(f"{ANNOUNCE}#x"),
        b"nonsense\r\n\r\n",
    ],
    ids=lambda sent: sent[:24].decode("latin-1"),
)
async def test_all_else_is_aiohttps_for_good(watched: Watched, other: bytes) -> None:
    async with talking(RecordingTracker()) as client:
        await client.get(ANNOUNCE)
        client.send(other)
        await client.receive()
        if other.startswith(b"GET") and b"\xff" not in other:
            if other.count(b"GET") > 1:
                await client.receive()
            assert (await client.get(ANNOUNCE)).reply[b"peers"] == b""
    assert watched.handed_over == 1


@on_loops()
async def test_what_comes_ahead_of_an_answer_is_answered_after_it(watched: Watched) -> None:
    tracker = RecordingTracker()
    tracker.gate.clear()
    async with talking(tracker) as client:
        client.send(request(ANNOUNCE))
        async with asyncio.timeout(PATIENCE):
            while not tracker.announces:
                await asyncio.sleep(0)
        for port in (1, 2, 3):
            client.send(request(ANNOUNCE.replace("6881", str(port))))
            await asyncio.sleep(0.01)
        assert watched.handed_over == 0
        tracker.gate.set()
        assert [(await client.receive()).reply[b"complete"] for _ in range(4)] == [6881, 1, 2, 3]
    assert watched.handed_over == 1


@on_loops()
async def test_decisions_that_take_their_time_are_aiohttps(watched: Watched) -> None:
    tracker = RecordingTracker()
    tracker.asks_first = True
    async with talking(tracker) as client:
        assert (await client.get(ANNOUNCE)).reply[b"peers"] == b""
    assert watched.handed_over == 1 and len(tracker.announces) == 1


@on_loops()
async def test_a_mistake_of_ours_is_answered_and_closes(
    watched: Watched, logs: list[dict[str, object]]
) -> None:
    tracker = RecordingTracker()
    tracker.error = ZeroDivisionError("secret")
    async with talking(tracker) as client:
        response = await client.get(ANNOUNCE)
        assert response.failure == "internal error" and response.headers["connection"] == "close"
        assert await client.is_closed()
    assert watched.handed_over == 0
    assert [line["error"] for line in logs if line["log_level"] == "error"] == ["ZeroDivisionError"]
    logs.clear()


@on_loops("uvloop")
async def test_a_client_that_reads_nothing_holds_little(watched: Watched) -> None:
    """It may not ask for more while its answers pile up, and is given up after the time of an idle one."""
    tracker = RecordingTracker()
    tracker.error = ClientError("x" * 20_000)
    async with talking(tracker, keepalive_seconds=0.3) as client:
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(PATIENCE):
                while True:
                    client.send(request(ANNOUNCE))
                    await client.writer.drain()
                    await asyncio.sleep(0.001)
        assert len(tracker.announces) < 1000


@on_loops()
async def test_a_client_that_reads_nothing_is_cut_off_behind_the_door_too(watched: Watched) -> None:
    """The connection is handed over while an answer does not fit into the socket's buffers."""
    tracker = RecordingTracker()
    tracker.error = ClientError("x" * 8_000_000)
    tracker.gate.clear()
    async with talking(tracker, keepalive_seconds=0.3) as client:
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        client.send(request(ANNOUNCE))
        async with asyncio.timeout(PATIENCE):
            while not tracker.announces:
                await asyncio.sleep(0)
        for _ in range(4):
            client.send(request(ANNOUNCE))
        await asyncio.sleep(0.05)
        tracker.gate.set()
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(PATIENCE):
                while True:
                    client.send(b"x")
                    await client.writer.drain()
                    await asyncio.sleep(0.01)
    assert watched.handed_over == 1
    assert len(tracker.announces) == 2


@on_loops("uvloop")
async def test_both_servers_refuse_the_same_long_requests(watched: Watched) -> None:
    async with talking(RecordingTracker(), max_request_line_bytes=1024) as client:
        assert (await client.get(f"{ANNOUNCE}&x={'x' * 1024}")).failure.startswith("the request is too long")
    assert watched.handed_over == 1


@on_loops("uvloop")
async def test_a_mistake_in_a_query_does_not_hide_a_second_request(watched: Watched) -> None:
    two = f"GET {ANNOUNCE}&info_hash=a&info_hash=b HTTP/2.0\r\nHost: t\r\n\r\n".encode() + request(ANNOUNCE)
    async with talking(RecordingTracker()) as client:
        client.send(two)
        await client.receive()
    assert watched.handed_over == 1


async def _answers(client: Client, sent: bytes) -> list[Response]:
    client.send(sent)
    client.half_close()
    answers = []
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, TimeoutError):
        while True:
            answers.append(await client.receive())
    return answers


@on_loops("uvloop")
@pytest.mark.slow
async def test_both_servers_see_the_same_requests_in_the_same_bytes(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the head: as many answers, the same ones, and the same end of the connection."""
    source = random.Random(5)
    tracker = RecordingTracker()
    async with serving(tracker) as with_door:
        monkeypatch.setattr("tests.frontends.harness.door_is_ajar", False)
        async with serving(tracker) as without:
            for _ in range(300):
                sent = _mutated(source)
                answers = []
                for address in (with_door, without):
                    async with connect(address) as client:
                        answers.append(await _answers(client, sent))
                assert answers[0] == answers[1], sent


_LINES = [
    *("Host: t", "Host: u", "User-Agent: x", "Connection: close", "Connection: keep-alive", "Accept: */*"),
    *(
        "Content-Length: 0",
        "Content-Length: 5",
        "Transfer-Encoding: chunked",
        "Expect: 100-continue",
        "X-A:b",
    ),
    *(
        "Upgrade: websocket",
        " folded",
        "No colon",
        "Sp ace: x",
        "\tTab: y",
        "Nul: \x00",
        "High: \xe9",
        ": x",
        "",
    ),
]


def _mutated(source: random.Random) -> bytes:
    """A request of odd lines, now and then with odd line ends, odd bytes, or another one behind it."""
    lines = [
        f"GET {source.choice([ANNOUNCE, ANNOUNCE, '/scrape', '/announce?x'])} HTTP/1.{source.choice('0111')}"
    ]
    lines += ["Host: t"] * (source.random() < 0.8) + source.choices(_LINES, k=source.randrange(3))
    sent = source.choice(["\r\n"] * 8 + ["\n", "\r"]).join([*lines, "", ""]).encode("latin-1")
    if source.random() < 0.2:
        at = source.randrange(len(sent))
        sent = (
            sent[:at]
            + source.choice([b"\r", b"\n", b" ", b"\t", b"\x00", b"\xff", b"#", b"?"])
            + sent[at + 1 :]
        )
    return sent + source.choice([b"", b"", b"", request(ANNOUNCE), b"hello", b"0\r\n\r\n"])
