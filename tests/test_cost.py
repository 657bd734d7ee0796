"""What an announce costs, counted and not timed, so that speed cannot rot unseen on machines that are never quiet.

Each bound says what it holds. It stands as close above what is counted now as the versions of CPython and of the
store differ; whoever makes something cheaper lowers its bound in the same change, and whoever needs more says why.
"""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from tests.store.harness import Store, running, update
from tracker.bittorrent import Address, AnnounceReply
from tracker.core import announce
from tracker.core.announce import Tracker
from tracker.core.rate_limits import Limits
from tracker.frontends.http.server import serve_http
from tracker.settings.model import Settings
from tracker.settings.reload import LiveSettings
from tracker.store.access.allow_list import AllowList
from tracker.store.schema.keys import Keys
from tracker.store.swarms.codec import Admitted
from tracker.store.swarms.rules import SwarmRules
from tracker.store.swarms.swarms import MAX_BATCH
from tracker.wire import http_reply, http_request

pytestmark = pytest.mark.serial

COMMANDS: dict[str, float] = {
    # a seeder or leecher that comes again: read its place, write it, set its timeout, pick peers; leechers are told
    # of both kinds
    "regular": 7.4,
    "join": 13.6,  # a new peer: its hash, two arrays, two sets, its address, counts beside
    # in a swarm of more than an answer holds: it takes a random slot, whose occupant moves to the end
    "join of many": 17.9,
    # a user's leecher becomes a seeder: the arrays, the user's totals, the snatch, and who completed the torrent last
    "completed by a user": 37.6,
    "stop": 13.5,  # a peer leaves: the last of its array takes its place, and its address goes
}
"""Most commands of the store for one announce, on average of a full batch, the call of the script left out."""

ROUND_TRIPS = 1
"""Script calls for as many announces as one may carry, when all of them wait."""

INSTRUCTIONS: dict[str, int] = {
    "parse": 185,  # the query of libtorrent, in the order that most clients have, and its checks
    "parse in another order": 850,  # the same parameters one by one
    "encode": 45,  # counts and packed peers put into one bytes object
}
"""Most bytecode instructions of Python's; the versions count a little differently, and what C does counts as one."""

CALLS: dict[str, int] = {"parse": 2, "parse in another order": 13, "encode": 1}
"""Most functions of the tracker's that are entered."""

SOCKET_TO_SOCKET = 925
"""Most instructions for an announce in all of the tracker's own code, when a full batch of them arrives together."""

PACKAGE = str(Path(announce.__file__).parents[1])

QUERY = (
    b"info_hash=%9c%a8%3ehC%09%b5%e8P%5e%7c%be%af%1a%a9%1e%11%f5%d2%8b&peer_id=-LT2080-%1a%f9%00k%22%c3W%9d%e5%0f%3bw"
    b"&port=51413&uploaded=734003200&downloaded=1468006400&left=0&corrupt=0&key=1F3A9C07&event=started&numwant=50"
    b"&compact=1&no_peer_id=1&supportcrypto=1&redundant=0&ipv6=&lt=1"
)
OTHER_ORDER = b"&".join(reversed(QUERY.split(b"&")))
REPLY = AnnounceReply(
    interval_seconds=1800,
    min_interval_seconds=900,
    seeders=25,
    leechers=25,
    completions=120,
    peers=b"abcdef" * 50,
    external_address=Address(b"\x0b\x00\x00\x01"),
)


@pytest.fixture
async def store(redis_url: str, prefix: str) -> AsyncIterator[Store]:
    """A swarm of two full batches, half of them seeders."""
    async with running(Store(redis_url, Keys(prefix), SwarmRules())) as store:
        for first in (0, MAX_BATCH):
            await announce_together(store, "s", first)
        yield store


async def announce_together(store: Store, event: str, first: int, torrents: int = 1) -> None:
    """As many announces as go into one call of the script, from peer number ``first`` on."""
    updates = [
        update(
            first + n,
            event,
            torrent=1 + n % torrents,
            bytes_left=1000 * (n % 2),
            random=n,
            key_digest=b"12345678",
        )
        for n in range(MAX_BATCH)
    ]
    replies = await asyncio.gather(*map(store.swarms.announce, updates))
    assert all(isinstance(reply, Admitted) for reply in replies)


async def commands_so_far(store: Store) -> Mapping[str, int]:
    statistics = await store.redis.info("commandstats")
    return {name.removeprefix("cmdstat_"): row["calls"] for name, row in statistics.items()}


async def commands_of(store: Store, event: str, first: int, torrents: int = 1) -> dict[str, int]:
    """Commands that the store ran for one batch, by name; those that ask for the figures are left out."""
    before = await commands_so_far(store)
    await announce_together(store, event, first, torrents)
    after = await commands_so_far(store)
    grown = {name: calls - before.get(name, 0) for name, calls in after.items()}
    return {name: calls for name, calls in sorted(grown.items()) if calls and name != "info"}


CALLED = ("evalsha", "eval", "fcall")
SMALL_SWARMS = 16
KINDS = [
    ("regular", "u", 0, 1),
    ("join", "s", 2 * MAX_BATCH, SMALL_SWARMS),
    ("join of many", "s", 2 * MAX_BATCH, 1),
    ("stop", "x", 0, 1),
]


@pytest.mark.parametrize(("kind", "event", "first", "torrents"), KINDS, ids=[kind for kind, *_ in KINDS])
async def test_an_announce_takes_few_commands(
    store: Store, kind: str, event: str, first: int, torrents: int
) -> None:
    if kind == "join":  # the first peers of small swarms register those
        await announce_together(store, "s", 10 * MAX_BATCH, torrents)
    found = await commands_of(store, event, first, torrents)
    inside = sum(calls for name, calls in found.items() if name not in CALLED) / MAX_BATCH
    assert inside <= COMMANDS[kind], f"{kind}: {inside:.2f} commands an announce, for {MAX_BATCH}: {found}"


async def test_a_snatch_takes_few_commands(redis_url: str, prefix: str) -> None:
    async with running(Store(redis_url, Keys(prefix), SwarmRules(private=True))) as store:
        for user in range(1, MAX_BATCH + 1):
            await store.redis.hset(store.keys.passkey(f"{user:020}"), mapping={"user_id": user})

        async def announce_all(event: str, bytes_left: int) -> None:
            users = range(1, MAX_BATCH + 1)
            updates = [
                update(user, event, bytes_left=bytes_left, passkey=f"{user:020}", random=user)
                for user in users
            ]
            await asyncio.gather(*map(store.swarms.announce, updates))

        await announce_all("s", 1000)
        before = await commands_so_far(store)
        await announce_all("c", 0)
        after = await commands_so_far(store)
    grown = {name: calls - before.get(name, 0) for name, calls in after.items() if name != "info"}
    inside = sum(calls for name, calls in grown.items() if name not in CALLED) / MAX_BATCH
    assert grown["zadd"] >= MAX_BATCH, "each of them is a snatch"
    assert inside <= COMMANDS["completed by a user"], f"{inside:.2f} commands a snatch: {grown}"


async def test_what_waits_goes_in_one_round_trip(store: Store) -> None:
    found = await commands_of(store, "u", 0)
    calls = sum(found.get(name, 0) for name in CALLED)
    assert calls == ROUND_TRIPS, f"{calls} calls for {MAX_BATCH} announces: {found}"


@dataclass
class Counted:
    instructions: int = 0
    calls: int = 0


def counted(work: Callable[[], object]) -> Counted:
    """What ``work`` takes: the same numbers every time."""
    work()  # what is made once is made
    with counting() as found:
        work()
    return found


@contextmanager
def counting() -> Iterator[Counted]:
    """Counts the bytecode instructions of the tracker's own code, and the functions of it that are entered."""
    found = Counted()
    with (_monitoring if sys.version_info >= (3, 12) else _tracing)(found):
        yield found


@contextmanager
def _tracing(found: Counted) -> Iterator[None]:
    def trace(frame: FrameType, event: str, argument: object) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "call":
            found.calls += 1
            frame.f_trace_opcodes = True
        found.instructions += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


@contextmanager
def _monitoring(found: Counted) -> Iterator[None]:
    """From 3.12 on tracing no longer tells of each instruction of a function that was entered before."""
    monitoring: Any = vars(sys)["monitoring"]
    tool, events = monitoring.PROFILER_ID, monitoring.events

    def entered(code: CodeType, *_: object) -> None:
        found.calls += code.co_filename.startswith(PACKAGE)

    def done(code: CodeType, *_: object) -> None:
        found.instructions += code.co_filename.startswith(PACKAGE)

    monitoring.use_tool_id(tool, "cost")
    try:
        for event, heard in (
            (events.PY_START, entered),
            (events.PY_RESUME, entered),
            (events.INSTRUCTION, done),
        ):
            monitoring.register_callback(tool, event, heard)
        monitoring.set_events(tool, events.PY_START | events.PY_RESUME | events.INSTRUCTION)
        yield
    finally:
        monitoring.set_events(tool, 0)
        monitoring.free_tool_id(tool)


WORK: dict[str, Callable[[], object]] = {
    "parse": lambda: http_request.parse_announce(QUERY),
    "parse in another order": lambda: http_request.parse_announce(OTHER_ORDER),
    "encode": lambda: http_reply.encode_announce(REPLY),
}


@pytest.mark.parametrize("part", WORK)
def test_the_wire_takes_few_instructions(part: str) -> None:
    found = counted(WORK[part])
    assert found == counted(WORK[part]), "the count is exact"
    told = f"{part}: {found.instructions} instructions in {found.calls} functions"
    assert found.instructions <= INSTRUCTIONS[part], told
    assert found.calls <= CALLS[part], told


def test_what_is_parsed_here_is_an_announce() -> None:
    """The bounds above hold something only as long as the work is the real one."""
    parsed = http_request.parse_announce(QUERY)
    assert (parsed.port, parsed.peers_wanted, parsed.key) == (51413, 50, b"1F3A9C07")
    assert REPLY.peers in http_reply.encode_announce(REPLY)


def query_of(client: int) -> bytes:
    """The same with a peer id and a port of its own."""
    return QUERY.replace(b"-LT2080-", b"-LT2%03d-" % client).replace(b"51413", b"%d" % (50_000 + client))


@pytest.fixture
async def port(store: Store) -> AsyncIterator[int]:
    """Of a front end with everything behind it but the background work."""
    settings = Settings.model_validate({"http": {"listen": ["127.0.0.1:0"]}})
    live = LiveSettings(settings)
    decisions = Tracker(
        store.swarms,
        store.counters,
        AllowList(store.clients, store.clock),
        live,
        secret=b"secret",
        clock=store.clock,
        limits=Limits(settings.limits, private=False),
        on_join=lambda info_hash, peer_id, address: None,
        on_client_seen=lambda peer_id, label: None,
    )
    async with serve_http(decisions, live) as (address,):
        yield int(address.rpartition(":")[2])


async def test_an_announce_takes_few_instructions_from_socket_to_socket(port: int) -> None:
    loop = asyncio.get_running_loop()
    requests = [b"GET /announce?" + query_of(n) + b" HTTP/1.1\r\nHost: x\r\n\r\n" for n in range(MAX_BATCH)]
    with ExitStack() as stack:
        clients = [stack.enter_context(socket.socket()) for _ in requests]
        for client in clients:
            client.setblocking(False)
            await loop.sock_connect(client, ("127.0.0.1", port))

        async def announce_all() -> None:
            for client, request in zip(clients, requests, strict=True):
                assert client.send(request) == len(
                    request
                )  # before the loop turns: all of them are one batch
            for client in clients:
                assert b"5:peers" in await loop.sock_recv(client, 65536)

        await announce_all()  # they join, and what is made once is made
        await announce_all()
        with counting() as found:
            await announce_all()
    each = found.instructions / MAX_BATCH
    assert 0 < each <= SOCKET_TO_SOCKET, f"{each:.0f} instructions, {found.calls / MAX_BATCH:.1f} functions"
