"""Limits on the cost of an announce. Costs are counted, not timed, so the results do not depend on the machine's load.

Each limit is just above the current count; the difference covers versions of CPython and of the store. A change that
makes something cheaper lowers its limit. A change that needs a higher limit states the reason.
"""

import asyncio
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from loadtest.bench import private_rules
from loadtest.bench.targets import find
from tests.frontends.udp.harness import announce_packet
from tests.store.harness import ALICE, Store, info_hash, redis_of, running, update
from tracker.bittorrent import Accounts, Address, AnnounceReply, InfoHash
from tracker.core import announce
from tracker.core.announce import Tracker
from tracker.core.clients import ClientRules
from tracker.core.counter_names import UDP
from tracker.core.rate_limits import Limits
from tracker.frontends.http.server import serve_http
from tracker.frontends.udp.server import serve_udp
from tracker.settings.model import LiveSettings, Settings
from tracker.store.access.client_lists import AllowListCache
from tracker.store.client.connection import Connection, connect
from tracker.store.schema.keys import Keys
from tracker.store.swarms.codec import Admitted
from tracker.store.swarms.rules import SwarmRules
from tracker.store.swarms.swarms import MAX_BATCH
from tracker.system.datagrams import open_datagram_sockets
from tracker.wire import http_reply, http_request
from tracker.wire.connection_id import ConnectionIds

pytestmark = pytest.mark.serial

COMMANDS: dict[str, float] = {
    # a peer in the swarm: read and write its hash, renew its timeout, select peers (for leechers of both kinds)
    "regular": 4.6,
    "regular, optional accounts": 5.6,  # the same without a passkey
    "regular, with peers of the DHT": 5.6,  # each reads the torrent's row
    "join": 11.1,  # a new peer: its hash, two arrays, two sets, its address, the counts
    # in a swarm larger than a reply: it takes a random slot, and the peer of that slot moves to the end
    "join of many": 17.5,
    # a user's leecher becomes a seeder: the arrays, the user's totals, the snatch, the list of latest completions
    "completed by a user": 33.3,
    "update of a user": 10.9,  # with traffic, which is added to the totals of the user, also on the torrent
    "update of a user, with all rules": 10.9,
    "join of a user": 19.4,
    "join of a user, with all rules": 20.4,  # the number of downloads
    "stop": 13.2,  # the last peer of the array moves to the free slot, and the address is removed
}
"""Maximum commands of the store per announce: the average of a full batch, without the script call itself."""

STORE_INSTRUCTIONS: dict[str, dict[str, int]] = {
    # The script tells for which users an announce counts: 1 more here, 7 less when announces are counted.
    "idle": {"public": 87, "private": 117},
    # One in a call: with several shards calls are small. Lua collects garbage of earlier calls there, so counts vary.
    "idle, alone": {"public": 142, "private": 180},
    "moving": {"public": 114, "private": 219, "private, all rules": 256},
    "join": {"public": 257, "private": 385, "private, all rules": 518},
    "stop": {"public": 225, "private": 429, "private, all rules": 499},
    "mix": {"public": 110, "private": 168},
}
"""Maximum thousands of instructions of the store per announce, by kind and tracker (private_rules.py). All announces of
a call are for different torrents. Regular ones of one torrent take 15 less, from the second one of a call on."""

STORE_RATIOS: dict[str, dict[str, float]] = {
    "idle": {"private": 1.35, "private, all rules": 1.6},
    "join": {"private": 1.5},
}
"""Maximum instructions of the store, by those for the same announce of a public tracker."""

ROUND_TRIPS = 1
"""Script calls for a full batch of waiting announces."""

INSTRUCTIONS: dict[str, int] = {
    "parse": 185,  # libtorrent's query in the usual order, with its validation
    "parse in another order": 850,  # the general parser
    "encode": 45,  # counts and packed peers
}
"""Maximum bytecode instructions. Versions of Python differ a little. A call into C counts as one."""

CALLS: dict[str, int] = {"parse": 2, "parse in another order": 13, "encode": 1}
"""Maximum calls of the tracker's functions."""

SOCKET_TO_SOCKET = 863
"""Maximum instructions per announce in all of the tracker's code, when a full batch arrives at once."""

SOCKET_TO_SOCKET_IN_SHARDS = 909
"""The same with four shards, so in four calls."""

SOCKET_TO_SOCKET_OF_USERS = {
    "/aaaaaaaaaaaaaaaaaaaa/announce?": 913,
    "/announce/aaaaaaaaaaaaaaaaaaaa?": 953,
    "/announce?passkey=aaaaaaaaaaaaaaaaaaaa&": 949,
}
"""The same where passkeys are required, by the form of the announce URL."""

SOCKET_TO_SOCKET_CLOSE = 1297
"""The same with a connection for each announce, which is accepted and closed in the tracker's code."""

SOCKET_TO_SOCKET_UDP = 862
"""The same over UDP, which reads several datagrams in one turn of the event loop."""

PAGE_CALL = {"torrents": (205, 60_000), "users": (155, 50_000)}
"""Of one call for a page of 1,000 rows: maximum commands of the store, and instructions of this process to read its
rows. 200 commands took 0.5 ms with their script, 60,000 instructions 0.9 ms. An announce waits for one call, and for
a few fifths of its rows: less than 2 ms."""

SECRET = bytes(range(32))
PACKAGE = str(Path(announce.__file__).parents[1])

QUERY = (
    b"info_hash=%9c%a8%3ehC%09%b5%e8P%5e%7c%be%af%1a%a9%1e%11%f5%d2%8b&peer_id=-LT2080-%1a%f9%00k%22%c3W%9d%e5%0f%3bw"
    b"&port=51413&uploaded=734003200&downloaded=1468006400&left=0&corrupt=0&key=1F3A9C07&event=started&numwant=50"
    b"&compact=1&no_peer_id=1&supportcrypto=1&redundant=0&ipv6=&lt=1"
)
ANNOUNCE = http_request.parse_announce(QUERY)
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
    """Sends a full batch of announces, of the peers from number ``first`` on."""
    updates = [
        update(first + n, event, torrent=1 + n % torrents, bytes_left=1000 * (n % 2), random=n, key=b"12345678")
        for n in range(MAX_BATCH)
    ]
    replies = await asyncio.gather(*map(store.swarms.announce, updates))
    assert all(isinstance(reply, Admitted) for reply in replies)


async def commands_so_far(store: Store) -> Mapping[str, int]:
    statistics = await store.redis.info("commandstats")
    return {name.removeprefix("cmdstat_"): row["calls"] for name, row in statistics.items()}


async def commands_of(store: Store, event: str, first: int, torrents: int = 1) -> dict[str, int]:
    """Returns command -> calls in the store for one batch an hour later, without the INFO of this test."""
    store.clock.now += 3600
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
async def test_an_announce_takes_few_commands(store: Store, kind: str, event: str, first: int, torrents: int) -> None:
    if kind == "join":  # these joins register the torrents
        await announce_together(store, "s", 10 * MAX_BATCH, torrents)
    found = await commands_of(store, event, first, torrents)
    inside = sum(calls for name, calls in found.items() if name not in CALLED) / MAX_BATCH
    assert inside <= COMMANDS[kind], f"{kind}: {inside:.2f} commands an announce, for {MAX_BATCH}: {found}"


async def test_peers_of_the_dht_cost_other_torrents_nothing(redis_url: str, prefix: str) -> None:
    """D18: no command more where announces that find few peers may get some."""
    async with running(Store(redis_url, Keys(prefix), SwarmRules(give_below=200))) as store:
        for first in (0, MAX_BATCH):
            await announce_together(store, "s", first)
        await announce_together(store, "s", 10 * MAX_BATCH, SMALL_SWARMS)
        for kind, event, first, torrents in KINDS:
            found = await commands_of(store, event, first, torrents)
            inside = sum(calls for name, calls in found.items() if name not in CALLED) / MAX_BATCH
            most = COMMANDS["regular, with peers of the DHT" if kind == "regular" else kind]
            assert inside <= most, f"{kind}: {inside:.2f} commands an announce: {found}"


async def test_an_anonymous_announce_takes_few_commands_where_accounts_are_optional(
    redis_url: str, prefix: str
) -> None:
    async with running(Store(redis_url, Keys(prefix), SwarmRules(accounts="optional"))) as store:
        await announce_together(store, "s", 0)
        await announce_together(store, "s", MAX_BATCH)
        found = await commands_of(store, "u", 0)
    inside = sum(calls for name, calls in found.items() if name not in CALLED) / MAX_BATCH
    assert inside <= COMMANDS["regular, optional accounts"], f"{inside:.2f} commands an announce: {found}"


@pytest.mark.parametrize(("kind", "more"), [("regular", 0), ("join of many", 1), ("stop", 1)])
async def test_the_change_feed_takes_one_command_a_change(redis_url: str, prefix: str, kind: str, more: int) -> None:
    """And none for an announce that changes nothing."""
    ((_, event, first, torrents),) = [row for row in KINDS if row[0] == kind]
    async with running(Store(redis_url, Keys(prefix), SwarmRules(max_changes=1000))) as store:
        await announce_together(store, "s", 0)
        await announce_together(store, "s", MAX_BATCH)
        found = await commands_of(store, event, first, torrents)
    assert found.get("xadd", 0) == more * MAX_BATCH
    inside = sum(calls for name, calls in found.items() if name not in CALLED) / MAX_BATCH
    assert inside <= COMMANDS[kind] + more, f"{kind}: {inside:.2f} commands an announce: {found}"


async def test_a_snatch_takes_few_commands(redis_url: str, prefix: str) -> None:
    async with running(Store(redis_url, Keys(prefix), SwarmRules(accounts="required"))) as store:
        for user in range(1, MAX_BATCH + 1):
            await store.redis.hset(store.keys.passkey(f"{user:020}"), mapping={"user_id": user})

        async def announce_all(event: str, bytes_left: int) -> None:
            users = range(1, MAX_BATCH + 1)
            updates = [update(user, event, bytes_left=bytes_left, passkey=f"{user:020}", random=user) for user in users]
            await asyncio.gather(*map(store.swarms.announce, updates))

        await announce_all("s", 1000)
        before = await commands_so_far(store)
        await announce_all("c", 0)
        after = await commands_so_far(store)
    grown = {name: calls - before.get(name, 0) for name, calls in after.items() if name != "info"}
    inside = sum(calls for name, calls in grown.items() if name not in CALLED) / MAX_BATCH
    assert grown["zadd"] >= MAX_BATCH, "every announce must be a snatch"
    assert inside <= COMMANDS["completed by a user"], f"{inside:.2f} commands a snatch: {grown}"


@pytest.mark.parametrize("with_rules", [False, True])
async def test_rules_for_users_take_few_commands(redis_url: str, prefix: str, *, with_rules: bool) -> None:
    """Multipliers, tokens, groups and the limit on peers cost nothing; the limit on downloads costs one at a leecher's
    join."""
    rules = SwarmRules(accounts="required", peer_memory=3600)
    if with_rules:
        rules = replace(rules, max_peers=3, max_downloads=1000)
    async with running(Store(redis_url, Keys(prefix), rules)) as store:
        passkeys = [f"{user:020}" for user in range(1, MAX_BATCH + 1)]
        for user, passkey in enumerate(passkeys, 1):
            await store.users.add(str(user), passkey)
            if with_rules:
                await store.users.edit(passkey, {"upload_multiplier": "3", "max_downloads": "50", "group": 5})
                await store.freeleech.give(str(user), "2", 2**40)
        if with_rules:
            await store.multipliers.set(f"2 {2**39}", f"0.5 {2**39}")
            for group in range(1, 21):
                await store.groups.save(group, {"upload_multiplier": "4", "max_downloads": "60"})

        async def announce_all(event: str, torrent: int, **changes: Any) -> float:
            """Commands per announce."""
            before = await commands_so_far(store)
            updates = [
                update(user, event, torrent, passkey=passkey, random=user, **changes)
                for user, passkey in enumerate(passkeys, 1)
            ]
            replies = await asyncio.gather(*map(store.swarms.announce, updates))
            assert all(isinstance(reply, Admitted) for reply in replies)
            after = await commands_so_far(store)
            grown = {name: calls - before.get(name, 0) for name, calls in after.items() if name != "info"}
            return sum(calls for name, calls in grown.items() if name not in CALLED) / MAX_BATCH

        await announce_all("s", 1)
        await store.torrents.add(info_hash(2))
        joins = await announce_all("s", 2)
        store.clock.now += 100
        updates = await announce_all("u", 1, uploaded=50, downloaded=100, bytes_left=900)
    suffix = ", with all rules" if with_rules else ""
    assert joins <= COMMANDS["join of a user" + suffix]
    assert updates <= COMMANDS["update of a user" + suffix]


async def commands_with(redis_url: str, prefix: str, rules: SwarmRules) -> dict[str, float]:
    """Commands per announce by kind, and in the mix of a private tracker."""
    connection, counts = Connection(connect(redis_url, connect_timeout=20, timeout=20)), []

    async def measure() -> None:
        rows: Any = await redis_of(connection).info("commandstats")
        inside = {name: row["calls"] for name, row in rows.items() if name != "cmdstat_info"}
        counts.append(sum(calls for name, calls in inside.items() if name.removeprefix("cmdstat_") not in CALLED))

    try:
        await private_rules.announce_all(connection, prefix, rules, measure)
    finally:
        await connection.close()
    costs = [after - before for before, after in zip(counts[::2], counts[1::2], strict=True)]
    return private_rules.per_announce(costs)


COLLECT = """#!lua name=collect_garbage
redis.register_function('collect_garbage', function()
  collectgarbage('collect')
  return collectgarbage('count')
end)"""
"""Kilobytes that the functions of all libraries keep."""


async def test_the_announce_script_keeps_little_between_calls(store: Store) -> None:
    """Whatever numbers of peers it reads: what it keeps shares the caches of the CPU with the data."""
    torrents = range(1, MAX_BATCH + 1)
    await store.announce_together(*(update(1, "s", torrent=torrent) for torrent in torrents))
    await store.redis.execute_command("FUNCTION", "LOAD", "REPLACE", COLLECT)
    before = await store.redis.fcall("collect_garbage", 0)
    for number in range(0, 4800, MAX_BATCH):
        async with store.redis.pipeline() as pipeline:
            for torrent in torrents:
                pipeline.hset(store.keys.torrent(info_hash(torrent)), "arrays", f"{number + torrent} 0")
            await pipeline.execute()
        await store.announce_together(*(update(1, torrent=torrent) for torrent in torrents))
    after = await store.redis.fcall("collect_garbage", 0)
    await store.redis.execute_command("FUNCTION", "DELETE", "collect_garbage")
    assert after - before <= 250


async def test_all_rules_of_a_private_tracker_take_few_commands_more(redis_url: str, prefix: str) -> None:
    """A regular announce takes none more. A join is recorded in the change feed, and of a leecher the downloads are
    counted."""
    plain = await commands_with(redis_url, prefix, private_rules.WITHOUT_RULES)
    ruled = await commands_with(redis_url, f"{prefix}all:", private_rules.ALL_RULES)
    assert ruled["mix"] <= 1.02 * plain["mix"], f"{plain} {ruled}"
    assert ruled["idle"] <= plain["idle"]
    assert ruled["moving"] <= plain["moving"]
    assert ruled["join"] <= plain["join"] + 1.5
    assert ruled["completed"] <= plain["completed"] + 1


async def test_the_sync_of_a_sites_tables_costs_announces_the_change_feed_only(redis_url: str, prefix: str) -> None:
    """A command for each change, and one for a peer that announces, which is noted for the next round of the feed."""
    fed = replace(private_rules.WITHOUT_RULES, max_changes=2000, note_updates=True)
    plain = await commands_with(redis_url, prefix, private_rules.WITHOUT_RULES)
    synced = await commands_with(redis_url, f"{prefix}sync:", fed)
    more = {kind: synced[kind] - plain[kind] for kind in private_rules.MIX}
    most = {"idle": 1, "moving": 1, "join": 1, "completed": 2, "stop": 2}
    assert not {kind: number for kind, number in more.items() if number > most[kind]}


@pytest.mark.long
@pytest.mark.skipif(not find("valgrind"), reason="valgrind is not installed")
@pytest.mark.parametrize("kind", STORE_INSTRUCTIONS)
def test_an_announce_takes_few_instructions_of_the_store(kind: str) -> None:
    costs = private_rules.measure(alone=kind.endswith(", alone"))
    for tracker, most in STORE_INSTRUCTIONS[kind].items():
        taken = costs[tracker][kind.removesuffix(", alone")]
        assert taken <= 1000 * most, f"{kind}, {tracker}: {taken:.0f} instructions"


@pytest.mark.long
@pytest.mark.skipif(not find("valgrind"), reason="valgrind is not installed")
@pytest.mark.parametrize("kind", STORE_RATIOS)
def test_announces_of_users_take_few_instructions_more(kind: str) -> None:
    costs = private_rules.measure()
    for tracker, most in STORE_RATIOS[kind].items():
        ratio = costs[tracker][kind] / costs["public"][kind]
        assert ratio <= most, f"{kind}, {tracker}: {ratio:.2f} times the instructions"


async def test_waiting_announces_take_one_round_trip(store: Store) -> None:
    found = await commands_of(store, "u", 0)
    calls = sum(found.get(name, 0) for name in CALLED)
    assert calls == ROUND_TRIPS, f"{calls} calls for {MAX_BATCH} announces: {found}"


@dataclass
class Counted:
    instructions: int = 0
    calls: int = 0


def counted(work: Callable[[], object]) -> Counted:
    """Counts the cost of ``work``. The result is the same every time."""
    work()  # fills the caches
    with counting() as found:
        work()
    return found


@contextmanager
def counting() -> Iterator[Counted]:
    """Counts bytecode instructions and function calls in the tracker's own code."""
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
    """From Python 3.12 on, tracing misses instructions of functions that have run before."""
    monitoring: Any = vars(sys)["monitoring"]
    tool, events = monitoring.PROFILER_ID, monitoring.events

    def entered(code: CodeType, *_: object) -> None:
        found.calls += code.co_filename.startswith(PACKAGE)

    def done(code: CodeType, *_: object) -> None:
        found.instructions += code.co_filename.startswith(PACKAGE)

    monitoring.use_tool_id(tool, "cost")
    try:
        for event, callback in ((events.PY_START, entered), (events.PY_RESUME, entered), (events.INSTRUCTION, done)):
            monitoring.register_callback(tool, event, callback)
        monitoring.set_events(tool, events.PY_START | events.PY_RESUME | events.INSTRUCTION)
        yield
    finally:
        monitoring.set_events(tool, 0)
        monitoring.free_tool_id(tool)


WORK: dict[str, Callable[[], object]] = {
    "parse": lambda: http_request.parse_announce(QUERY),
    "parse in another order": lambda: http_request.parse_announce(OTHER_ORDER),
    "encode": lambda: http_reply.encode_announce(REPLY, ANNOUNCE),
}


@pytest.mark.parametrize("part", WORK)
def test_the_wire_takes_few_instructions(part: str) -> None:
    found = counted(WORK[part])
    assert found == counted(WORK[part]), "the count is exact"
    result = f"{part}: {found.instructions} instructions in {found.calls} functions"
    assert found.instructions <= INSTRUCTIONS[part], result
    assert found.calls <= CALLS[part], result


def test_the_measured_announce_is_parsed_and_encoded_correctly() -> None:
    """The limits mean something only if the measured work gives correct results."""
    parsed = http_request.parse_announce(QUERY)
    assert (parsed.port, parsed.peers_wanted, parsed.key) == (51413, 50, b"1F3A9C07")
    assert REPLY.peers in http_reply.encode_announce(REPLY, ANNOUNCE)


def query_of(client: int) -> bytes:
    """Returns the query with another peer id and port for each client."""
    return QUERY.replace(b"-LT2080-", b"-LT2%03d-" % client).replace(b"51413", b"%d" % (50_000 + client))


@pytest.fixture
async def front_ends(store: Store) -> AsyncIterator[tuple[int, int]]:
    """The ports of the front ends for HTTP and UDP with their store, without background work."""
    async with serving(store) as ports:
        yield ports


@asynccontextmanager
async def serving(store: Store, accounts: Accounts = "off") -> AsyncIterator[tuple[int, int]]:
    settings = Settings.model_validate({"http": {"listen": ["127.0.0.1:0"]}, "users": {"private": accounts}})
    live = LiveSettings(settings)
    decisions = Tracker(
        store.swarms,
        store.counters,
        ClientRules(AllowListCache(store.allow_list, store.clock), store.deny_list_cache),
        live,
        clock=store.clock,
        limits=Limits(settings.limits, accounts=accounts),
        on_join=lambda info_hash, peer_id, address: None,
        on_refused=lambda info_hash, peer_id, label, passkey, address: None,
    )
    ((datagrams,),) = await open_datagram_sockets(["127.0.0.1:0"], 2**20)
    async with (
        serve_http(decisions, live) as (address,),
        serve_udp(decisions.over(UDP), live, [datagrams], secret=SECRET),
    ):
        yield int(address.rpartition(":")[2]), int(datagrams.address.rpartition(":")[2])


async def instructions_per_announce(
    kind: socket.SocketKind, port: int, requests: Sequence[bytes], reply: bytes
) -> Counted:
    """Counts regular announces, each from its own socket; ``reply`` is a part of every reply."""
    loop = asyncio.get_running_loop()
    with ExitStack() as stack:
        clients = [stack.enter_context(socket.socket(type=kind)) for _ in requests]
        for client in clients:
            client.setblocking(False)
            await loop.sock_connect(client, ("127.0.0.1", port))

        async def announce_all() -> None:
            for client, request in zip(clients, requests, strict=True):
                sent = client.send(request)  # before the loop runs, so that all are in one batch
                assert sent == len(request)
            for client in clients:
                assert reply in await loop.sock_recv(client, 65536)

        await announce_all()  # joins, and fills the caches
        await announce_all()
        with counting() as found:
            await announce_all()
    return Counted(found.instructions // MAX_BATCH, found.calls // MAX_BATCH)


async def test_an_announce_takes_few_instructions_from_socket_to_socket(front_ends: tuple[int, int]) -> None:
    requests = [b"GET /announce?" + query_of(n) + b" HTTP/1.1\r\nHost: x\r\n\r\n" for n in range(MAX_BATCH)]
    found = await instructions_per_announce(socket.SOCK_STREAM, front_ends[0], requests, b"5:peers")
    assert 0 < found.instructions <= SOCKET_TO_SOCKET, found


async def test_an_announce_with_shards_takes_few_instructions(redis_url: str, prefix: str) -> None:
    shards = 4
    async with running(Store(redis_url, Keys(prefix), SwarmRules(), shards=shards)) as store:
        async with serving(store) as (port, _):
            requests = [
                b"GET /announce?" + query_of(n).replace(b"%9c", b"%%%02x" % n, 1) + b" HTTP/1.1\r\nHost: x\r\n\r\n"
                for n in range(MAX_BATCH)
            ]
            before = await commands_so_far(store)
            found = await instructions_per_announce(socket.SOCK_STREAM, port, requests, b"5:peers")
            after = await commands_so_far(store)
    calls = sum(after.get(name, 0) - before.get(name, 0) for name in CALLED)
    assert calls == 5 * shards, calls  # the first announces register torrents, and are sent again
    assert 0 < found.instructions <= SOCKET_TO_SOCKET_IN_SHARDS, found


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the event loop accepts")
async def test_an_announce_on_its_own_connection_takes_few_instructions(front_ends: tuple[int, int]) -> None:
    loop, port = asyncio.get_running_loop(), front_ends[0]
    lines = b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

    async def announce_all() -> None:
        clients = []
        for n in range(MAX_BATCH):  # before the loop runs, so that all are in one batch
            clients.append(socket.create_connection(("127.0.0.1", port)))
            clients[-1].sendall(b"GET /announce?" + query_of(n) + lines)
        for client in clients:
            with client:
                client.setblocking(False)
                assert b"5:peers" in await loop.sock_recv(client, 65536)
                assert await loop.sock_recv(client, 1) == b""

    await announce_all()  # joins, and fills the caches
    await announce_all()
    with counting() as found:
        await announce_all()
    assert 0 < found.instructions // MAX_BATCH <= SOCKET_TO_SOCKET_CLOSE, found


@pytest.mark.parametrize("form", SOCKET_TO_SOCKET_OF_USERS)
async def test_an_announce_with_a_passkey_takes_few_instructions(redis_url: str, prefix: str, form: str) -> None:
    async with running(Store(redis_url, Keys(prefix), SwarmRules(accounts="required"))) as store:
        await store.users.add("7", ALICE)
        async with serving(store, "required") as (port, _):
            requests = [
                f"GET {form}".encode() + query_of(n) + b" HTTP/1.1\r\nHost: x\r\n\r\n" for n in range(MAX_BATCH)
            ]
            found = await instructions_per_announce(socket.SOCK_STREAM, port, requests, b"5:peers")
    assert 0 < found.instructions <= SOCKET_TO_SOCKET_OF_USERS[form], found


async def test_an_announce_over_udp_takes_few_instructions(front_ends: tuple[int, int]) -> None:
    """The packet is libtorrent's, with the path of its URL."""
    connection_id = ConnectionIds(SECRET).issue(Address(b"\x7f\0\0\1"), time.time())
    packet = announce_packet(connection_id, b"\x02\x09/announce", event=0)
    requests = [
        packet.replace(b"-qB5020-", b"-qB5%03d-" % n).replace(b"\x1a\xe1", (50_000 + n).to_bytes(2, "big"))
        for n in range(MAX_BATCH)
    ]
    found = await instructions_per_announce(socket.SOCK_DGRAM, front_ends[1], requests, b"\0\0\0\1Ufw\x88")
    assert 0 < found.instructions <= SOCKET_TO_SOCKET_UDP < SOCKET_TO_SOCKET, found


@pytest.mark.parametrize("kind", PAGE_CALL)
async def test_a_page_of_1000_rows_delays_announces_little(store: Store, kind: str) -> None:
    """Each of its calls lets an announce pass: in the store, on the pipe, and in this process."""
    hashes = [InfoHash(number.to_bytes(20, "big")) for number in range(1000, 2000)]
    if kind == "torrents":
        await store.torrents.add_many([(each, {"name": f"name {each[-1]}", "size": "7"}) for each in hashes])
    else:
        for number in range(1, 1001):
            await store.users.add(str(number), f"{number:032}", name=f"name {number}")
    ids = [str(number) for number in range(1, 1001)]

    async def read() -> Sequence[object]:
        return await (store.torrents.get_all(hashes) if kind == "torrents" else store.users.by_ids(ids))

    assert len(await read()) == 1000

    before = await commands_so_far(store)
    await read()
    after = await commands_so_far(store)
    grown = {name: calls - before.get(name, 0) for name, calls in after.items() if name != "info"}
    calls = grown.pop("evalsha")
    commands, instructions = PAGE_CALL[kind]
    assert sum(grown.values()) / calls <= commands, (calls, grown)

    order: list[str] = []

    async def announce() -> None:
        while "page" not in order:
            await store.announce(update(1, random=len(order)))
            order.append("announce")

    async def page() -> None:
        await read()
        order.append("page")

    with counting() as found:
        await read()
    assert found.instructions / calls <= instructions, found.instructions / calls
    await asyncio.gather(announce(), page())
    assert order.index("page") >= calls / 2, "an announce waited for several calls of the page"
