"""What the fast protocol answers, and what it hands over to aiohttp.

All other tests of this folder run with both protocols, and so show that they answer alike.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.frontends.http.harness import ANNOUNCE, QUERY, RecordingTracker, on_loops, serving
from tests.raw_http import PATIENCE, Client, Response, connect, request
from tests.waiting import eventually, loop_turns
from tracker.frontends.http import aiohttp_protocol as aiohttp_side
from tracker.refusals import Refusal
from tracker.settings.public import UserSettings


class HandOvers:
    """Counts the connections handed over to aiohttp."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        made = aiohttp_side.Server.connection_made

        def connection_made(
            server: aiohttp_side.Server, handler: aiohttp_side.Connection, transport: asyncio.Transport
        ) -> None:
            self.count += 1
            made(server, handler, transport)

        monkeypatch.setattr(aiohttp_side.Server, "connection_made", connection_made)


@pytest.fixture
def hand_overs(protocol: str, monkeypatch: pytest.MonkeyPatch) -> HandOvers:
    if protocol != "fast":
        pytest.skip("the fast protocol is disabled")
    return HandOvers(monkeypatch)


@contextlib.asynccontextmanager
async def talking(tracker: RecordingTracker, users: UserSettings | None = None, **http: Any) -> AsyncIterator[Client]:
    async with serving(tracker, users=users, **http) as address, connect(address) as client:
        yield client


@on_loops()
async def test_plain_announces_stay_on_the_fast_path(hand_overs: HandOvers) -> None:
    tracker = RecordingTracker()
    async with talking(tracker) as client:
        for target in (ANNOUNCE, f"/0123abcd/announce?{QUERY}", "/announce?info_hash=short"):
            for lines in ([], ["User-Agent: Transmission/3.00"], ["Accept: */*", "Accept-Encoding: gzip"]):
                await client.get(target, *lines)
    assert [passkey for _, passkey, _ in tracker.announces] == [None] * 3 + ["0123abcd"] * 3
    assert hand_overs.count == 0


PRIVATE = UserSettings(private="required")
FORMS = (
    *("/0123abcd/{}?{}", "/{}/0123abcd?{}", "/{}?passkey=0123abcd&{}"),
    *("/{}?passkey=0123abcd?{}", "/{}.php?passkey=0123abcd&{}", "/{}.php?passkey=0123abcd?{}"),
)
"""Announce and scrape URLs with a passkey."""


@on_loops("uvloop")
async def test_each_form_of_a_passkey_stays_on_the_fast_path(hand_overs: HandOvers) -> None:
    tracker = RecordingTracker()
    async with talking(tracker, users=PRIVATE) as client:
        for form in ("/{}?{}", "/{}.php?{}", *FORMS):
            assert b"peers" in (await client.get(form.format("announce", QUERY))).reply
            assert b"files" in (await client.get(form.format("scrape", QUERY))).reply
    assert [passkey for _, passkey, _ in tracker.announces] == [None] * 2 + ["0123abcd"] * len(FORMS)
    assert [passkey for _, passkey, _ in tracker.scrapes] == [None] * 2 + ["0123abcd"] * len(FORMS)
    assert {announce for announce, _, _ in tracker.announces} == {tracker.announces[0][0]}
    assert hand_overs.count == 0


@on_loops("uvloop")
@pytest.mark.parametrize(
    ("target", "passkey"),
    [
        (f"/announce?{QUERY}&passkey=0123abcd", "0123abcd"),
        (f"/announce?passkey=0123%61bcd&{QUERY}", "0123abcd"),
        (f"//announce//0123abcd/?{QUERY}", "0123abcd"),
        (f"/announce?x=1&passkey=0123abcd?{QUERY}", "0123abcd"),
        (f"/0123abcd/announce.php?{QUERY}", "0123abcd"),
        (f"/announce.php/0123abcd?{QUERY}", "0123abcd"),
        (f"/announce/announce.php?{QUERY}", "announce"),
        (f"/announce?info_hash={'a' * 20}&peer_id=passkey=abcdefghijkl&port=1", None),
    ],
)
async def test_other_spellings_of_a_passkey_are_handed_over(
    hand_overs: HandOvers, target: str, passkey: str | None
) -> None:
    tracker = RecordingTracker()
    async with talking(tracker, users=PRIVATE) as client:
        assert b"peers" in (await client.get(target)).reply
    assert [passkey for _, passkey, _ in tracker.announces] == [passkey]
    assert hand_overs.count == 1


@on_loops()
async def test_an_announce_may_arrive_in_pieces(hand_overs: HandOvers) -> None:
    async with talking(RecordingTracker()) as client:
        for _ in range(2):
            for byte in request(ANNOUNCE):
                client.send(bytes([byte]))
                await asyncio.sleep(0)
            assert (await client.receive()).reply[b"peers"] == b""
    assert hand_overs.count == 0


@on_loops()
@pytest.mark.parametrize("answered", [0, 1], ids=["new", "kept"])
async def test_a_head_that_is_never_finished_ends_the_connection(hand_overs: HandOvers, answered: int) -> None:
    """After the time for a head, which is shorter than that of an idle connection."""
    async with talking(RecordingTracker(), header_seconds=0.05, keepalive_seconds=3600) as client:
        for _ in range(answered):
            await client.get(ANNOUNCE)
        client.send(request(ANNOUNCE)[:-2])
        assert await client.is_closed()
    assert hand_overs.count == 0


@on_loops("uvloop")
async def test_an_unfinished_head_is_waited_for_up_to_the_limit(hand_overs: HandOvers) -> None:
    async with talking(RecordingTracker(), max_request_line_bytes=1024) as client:
        client.send(f"GET {ANNOUNCE}&x=".encode().ljust(1024, b"x"))
        await loop_turns(20)
        assert hand_overs.count == 0
        client.send(b"x")
        await eventually(lambda: hand_overs.count == 1)


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
async def test_any_other_request_hands_the_connection_over_for_good(hand_overs: HandOvers, other: bytes) -> None:
    async with talking(RecordingTracker()) as client:
        await client.get(ANNOUNCE)
        client.send(other)
        await client.receive()
        if other.startswith(b"GET") and b"\xff" not in other:
            if other.count(b"GET") > 1:
                await client.receive()
            assert (await client.get(ANNOUNCE)).reply[b"peers"] == b""
    assert hand_overs.count == 1


@on_loops()
async def test_early_requests_are_answered_in_order(hand_overs: HandOvers) -> None:
    tracker = RecordingTracker()
    tracker.may_answer.clear()
    async with talking(tracker) as client:
        client.send(request(ANNOUNCE))
        async with asyncio.timeout(PATIENCE):
            while not tracker.announces:
                await asyncio.sleep(0)
        for port in (1, 2, 3):
            client.send(request(ANNOUNCE.replace("6881", str(port))))
            await loop_turns(20)
        assert hand_overs.count == 0
        tracker.may_answer.set()
        assert [(await client.receive()).reply[b"complete"] for _ in range(4)] == [6881, 1, 2, 3]
    assert hand_overs.count == 1


@on_loops()
async def test_a_decision_that_reads_the_store_first_is_handed_over(hand_overs: HandOvers) -> None:
    tracker = RecordingTracker()
    tracker.reads_store_first = True
    async with talking(tracker) as client:
        assert (await client.get(ANNOUNCE)).reply[b"peers"] == b""
    assert hand_overs.count == 1 and len(tracker.announces) == 1


@on_loops()
async def test_an_internal_error_is_answered_and_closes_the_connection(
    hand_overs: HandOvers, logs: list[dict[str, object]]
) -> None:
    tracker = RecordingTracker()
    tracker.error = ZeroDivisionError("secret")
    async with talking(tracker) as client:
        response = await client.get(ANNOUNCE)
        assert response.failure == "internal error" and response.headers["connection"] == "close"
        assert await client.is_closed()
    assert hand_overs.count == 0
    assert [line["error"] for line in logs if line["log_level"] == "error"] == ["ZeroDivisionError"]
    logs.clear()


@on_loops("uvloop")
async def test_a_client_that_does_not_read_holds_bounded_memory(hand_overs: HandOvers) -> None:
    """Its requests are not read while answers are unread, and it times out like an idle connection."""
    tracker = RecordingTracker()
    tracker.error = Refusal("denied", "x" * 20_000)
    async with talking(tracker, keepalive_seconds=0.3) as client:
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(PATIENCE):
                while not client.writer.is_closing():  # uvloop raises RuntimeError for a write after that
                    client.send(request(ANNOUNCE))
                    await client.writer.drain()
                    await loop_turns(5)
        assert len(tracker.announces) < 1000


@on_loops()
async def test_a_client_that_does_not_read_is_disconnected_after_the_hand_over(hand_overs: HandOvers) -> None:
    """The connection is handed over while an answer does not fit in the socket buffers."""
    tracker = RecordingTracker()
    tracker.error = Refusal("denied", "x" * 8_000_000)
    tracker.may_answer.clear()
    async with talking(tracker, keepalive_seconds=0.3) as client:
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        client.send(request(ANNOUNCE))
        async with asyncio.timeout(PATIENCE):
            while not tracker.announces:
                await asyncio.sleep(0)
        for _ in range(4):
            client.send(request(ANNOUNCE))
        await loop_turns(20)
        tracker.may_answer.set()
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(PATIENCE):
                while not client.writer.is_closing():
                    client.send(b"x")
                    await client.writer.drain()
                    await loop_turns(20)
    assert hand_overs.count == 1
    assert len(tracker.announces) == 1


@on_loops("uvloop")
async def test_both_protocols_refuse_the_same_long_requests(hand_overs: HandOvers) -> None:
    async with talking(RecordingTracker(), max_request_line_bytes=1024) as client:
        assert (await client.get(f"{ANNOUNCE}&x={'x' * 1024}")).failure.startswith("GET string too long")
    assert hand_overs.count == 1


@on_loops("uvloop")
async def test_an_invalid_query_does_not_hide_a_second_request(hand_overs: HandOvers) -> None:
    two = f"GET {ANNOUNCE}&info_hash=a&info_hash=b HTTP/2.0\r\nHost: t\r\n\r\n".encode() + request(ANNOUNCE)
    async with talking(RecordingTracker()) as client:
        client.send(two)
        await client.receive()
    assert hand_overs.count == 1


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
async def test_both_protocols_give_the_same_answers_to_the_same_bytes(
    hand_overs: HandOvers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For any head: the same answers, and the same end of the connection."""
    source = random.Random(5)
    tracker = RecordingTracker()
    async with serving(tracker) as fast:
        monkeypatch.setattr("tests.frontends.http.harness.fast_path", False)
        async with serving(tracker) as slow:
            for _ in range(300):
                sent = _mutated(source)
                answers = []
                for address in (fast, slow):
                    async with connect(address) as client:
                        answers.append(await _answers(client, sent))
                assert answers[0] == answers[1], sent


_LINES = [
    *("Host: t", "Host: u", "User-Agent: x", "Connection: close", "Connection: keep-alive", "Accept: */*"),
    *("Content-Length: 0", "Content-Length: 5", "Transfer-Encoding: chunked", "Expect: 100-continue", "X-A:b"),
    *("Upgrade: websocket", " folded", "No colon", "Sp ace: x", "\tTab: y", "Nul: \x00", "High: \xe9", ": x", ""),
]


def _mutated(source: random.Random) -> bytes:
    """A request of odd lines, sometimes with odd line ends, odd bytes, or bytes after it."""
    lines = [f"GET {source.choice([ANNOUNCE, ANNOUNCE, '/scrape', '/announce?x'])} HTTP/1.{source.choice('0111')}"]
    lines += ["Host: t"] * (source.random() < 0.8) + source.choices(_LINES, k=source.randrange(3))
    sent = source.choice(["\r\n"] * 8 + ["\n", "\r"]).join([*lines, "", ""]).encode("latin-1")
    if source.random() < 0.2:
        at = source.randrange(len(sent))
        sent = sent[:at] + source.choice([b"\r", b"\n", b" ", b"\t", b"\x00", b"\xff", b"#", b"?"]) + sent[at + 1 :]
    return sent + source.choice([b"", b"", b"", request(ANNOUNCE), b"hello", b"0\r\n\r\n"])
