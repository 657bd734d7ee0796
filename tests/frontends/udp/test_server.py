"""Serving UDP: several addresses of one host, drops, the access log, and the graceful stop."""

import asyncio

import structlog

from tests.frontends.http.harness import RecordingTracker, on_loops
from tests.frontends.udp.harness import Client, announce_packet, serving
from tests.waiting import eventually
from tracker.frontends.udp import server


@on_loops()
async def test_a_reply_comes_from_the_address_that_was_asked() -> None:
    """U4: clients drop replies of another address; a connected socket does too."""
    async with serving("0.0.0.0:0") as served:
        for address in ("127.0.0.1", "127.0.0.2", "127.8.9.10"):
            client = Client((address, served.address[1]), source="127.0.0.1")
            served.clients.append(client)
            assert len(await client.ask(announce_packet(await client.connect()))) == 20


@on_loops()
async def test_a_wildcard_of_ipv6_answers_ipv6_only() -> None:
    async with serving("[::]:0") as served:
        client = Client(("::1", served.address[1]), served.family)
        served.clients.append(client)
        assert len(await client.ask(announce_packet(await client.connect()))) == 20


@on_loops()
async def test_datagrams_that_the_system_drops_are_counted() -> None:
    """The loop does not run while more arrive than the buffer holds."""
    async with serving() as served:
        client, sent = served.client(), 2000
        for _ in range(sent):
            client.send(b"garbage")
        await eventually(lambda: _received(served.counts()) >= sent)
        counts = served.counts()
        assert counts["udp.dropped"] > 0 and _received(counts) == sent


def _received(counts: dict[str, int]) -> int:
    return counts.get("udp.ignored.short", 0) + counts.get("udp.dropped", 0)


@on_loops()
async def test_stopping_answers_requests_in_flight() -> None:
    tracker = RecordingTracker()
    tracker.may_answer.clear()
    async with serving(tracker=tracker) as served:
        client = served.client()
        client.send(announce_packet(await client.connect()))
        await eventually(lambda: bool(tracker.announces))
        asyncio.get_running_loop().call_soon(tracker.may_answer.set)
        keep, served.clients = served.clients, []
    assert (await client.receive())[:4] == b"\0\0\0\1"
    for each in keep:
        each.socket.close()


async def test_the_access_log_has_a_line_per_announce_without_passkey() -> None:
    with structlog.testing.capture_logs() as logs:
        async with serving(http={"access_log": True}, users={"private": "required"}) as served:
            client = served.client()
            await client.ask(announce_packet(await client.connect(), b"\x02\x0e/0a1b/announce"))
    (line,) = [line for line in logs if line["event"] == "request"]
    assert (line["kind"], line["protocol"], line["client"]) == ("announce", "udp", "127.0.0.1")
    assert "0a1b" not in str(logs)


async def test_announces_that_wait_for_the_allow_list_are_limited() -> None:
    tracker = RecordingTracker()
    tracker.reads_store_first = True
    tracker.may_answer.clear()
    async with serving(tracker=tracker) as served:
        client = served.client()
        connection_id = await client.connect()
        for _ in range(server.MAX_LATER):
            assert await client.is_ignored(announce_packet(connection_id))
        assert "udp.ignored.budget" not in served.counts()
        assert await client.is_ignored(announce_packet(connection_id))
        assert served.counts()["udp.ignored.budget"] == 1
        tracker.may_answer.set()
