"""Shards that are unavailable, on a cluster of three nodes: what goes on without them, and what says that they are
missing."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import pytest
import structlog
from pydantic import SecretStr

from loadtest.cluster import Cluster, Node, cluster
from tests.store.harness import ALICE, BOB, Clock, timeout_key, update
from tests.store.sharding.harness import SHARDS, hash_in
from tests.waiting import eventually, in_background
from tracker.app.web import copy_users_on_reconnect, find_problems
from tracker.bittorrent import Address, PeerId, Scrape
from tracker.core.rate_limits import Limits
from tracker.core.refusals import Failures
from tracker.core.scrape import Scrapes
from tracker.errors import ClientError, StoreUnavailable
from tracker.runtime.store import open_connection, store_options
from tracker.settings.model import LiveSettings, RedisSettings, Settings
from tracker.settings.public import LimitSettings, UserSettings
from tracker.settings.site import ChangeSettings
from tracker.store.changes.changes import FIRST
from tracker.store.maintenance.maintenance import Maintenance
from tracker.store.schema.keys import main_prefix_of, shard_prefixes
from tracker.store.sharding.shards import MAIN, named, noting_unavailable_shards
from tracker.store.stats.metric_names import PlaceNames
from tracker.store.stats.unique_users import UniqueUserEvent
from tracker.store.store import Store
from tracker.store.swarms.codec import Admitted, Refused
from tracker.store.torrents.listing import TorrentFilter
from tracker.system.event_loop import running
from tracker.wire.http_reply import ready_text
from tracker.workers.reaper import Reaper, send_heartbeats
from tracker.workers.samples import sample_once
from tracker.workers.shard_reapers import LeaseKeeper, ShardReapers

PREFIX = "t:"
PATIENCE_SECONDS = 60.0
TIMEOUT = 20.0
Read = Callable[[Store], Awaitable[Any]]


@pytest.fixture
def group() -> Iterator[Cluster]:
    """Nodes that keep their data over a restart."""
    with cluster(options=("--appendonly", "yes", "--appendfsync", "always")) as group:
        group.be_patient()
        yield group


@asynccontextmanager
async def store_at(url: str, private: str = "off", clock: Callable[[], float] = time.time) -> AsyncIterator[Store]:
    """A store as a tracker opens it."""
    redis = RedisSettings(url=SecretStr(url), shards=SHARDS, connect_timeout_seconds=TIMEOUT)
    users = UserSettings.model_validate({"private": private})
    async with open_connection(url, redis, TIMEOUT) as (connection, _):
        changes = ChangeSettings(max_entries=1000)
        options = store_options(Settings(redis=redis, users=users, changes=changes))
        store = Store(connection, redis.prefix, options, clock=clock)
        await store.upgrade()
        await store.load_secret()
        await store.shards.gather(store.start_shard, store.shards.all)
        store.keep_checking_layout()
        copy_users_on_reconnect(store)
        async with running(connection.watch, store.swarms.run):
            yield store


def main_of(group: Cluster) -> Node:
    return group.primary(main_prefix_of(PREFIX, SHARDS))


def without_main(group: Cluster) -> tuple[Node, list[int]]:
    """A node without the main prefix, and its shards."""
    prefixes = list(shard_prefixes(PREFIX, SHARDS))
    places = [group.primary(each) for each in prefixes]
    node = next(each for each in places if each is not main_of(group))
    return node, [number for number, place in enumerate(places) if place is node]


def hashes() -> list[Any]:
    return [hash_in(number % SHARDS, number) for number in range(2 * SHARDS)]


async def fill(store: Store) -> None:
    for number, info_hash in enumerate(hashes()):
        await store.torrents.add(info_hash, {"name": f"name {number}", "private": "0"})
        for peer in range(3):
            await store.swarms.announce(update(peer, "s", info_hash=info_hash))
        await store.torrents.deny(hash_in(number % SHARDS, 100 + number), "spam")


async def refresh(store: Store) -> None:
    """Asks each shard something, so that the process knows which ones are unavailable."""
    await store.torrents.count()


MERGED: dict[str, Read] = {
    "torrents": lambda store: store.torrents.count(),
    "ranking": lambda store: store.torrents.top("seeders", 100),
    "sorted torrents": lambda store: store.torrent_listing.page(TorrentFilter("added")),
    "few torrents": lambda store: store.torrent_listing.filtered(TorrentFilter(private=True)),
    "filtered torrents": lambda store: store.torrent_listing.filtered(TorrentFilter(private=False)),
    "ranked torrents": lambda store: store.torrent_listing.rank(),
    "denials": lambda store: store.torrents.denials(),
    "number of denials": lambda store: store.torrents.denial_count(),
    "search": lambda store: store.torrents.search("name"),
    "totals": lambda store: store.counters.totals(),
    "changes": lambda store: store.changes.newest(5),
    "number of changes": lambda store: store.changes.size(),
    "number of scores": lambda store: store.scores.count(),
    "lag of scores": lambda store: store.scores.lag(),
    "due scores": lambda store: store.scores.take(10),
    "unique users": lambda store: store.unique_users.top("torrents"),
    "error of unique users": lambda store: store.unique_users.may_exceed(),
    "hit-and-runs": lambda store: store.hit_and_runs.pending(),
    "a user's hit-and-runs": lambda store: store.hit_and_runs.pending_of("7", ["1"]),
    "a user's peers": lambda store: store.user_peers.of("7"),
    "number of hit-and-runs": lambda store: store.hit_and_runs.pending_count(),
    "decided hit-and-runs": lambda store: store.hit_and_runs.decide(),
    "dropped hit-and-runs": lambda store: store.hit_and_runs.drop(),
    "deletions": lambda store: store.users.finish_deletions(),
    "a user's torrents": lambda store: store.users.first_torrents("7", "active", 100),
    "pages of a user's torrents": lambda store: asyncio.gather(
        *(store.users.torrents_page("7", "active", cursor) for cursor in range(SHARDS))
    ),
    "a user's sets": lambda store: store.users.set_sizes("7"),
    "a user's sums": lambda store: store.users.get(ALICE),
    "a user's accounts": lambda store: store.users.accounts([("7", str(n)) for n in range(SHARDS)]),
    "freeleech tokens": lambda store: store.freeleech.page("7"),
    "number of freeleech tokens": lambda store: store.freeleech.count("7"),
    "multipliers": lambda store: store.multipliers.set("2", "0.5"),
    "participation": lambda store: store.dht_torrents.participation(all_torrents=False),
    "lookups": lambda store: store.dht_torrents.last_lookups(0, 10),
    "number of lookups": lambda store: store.dht_torrents.looked_up_count(),
    "public torrents": lambda store: store.dht_torrents.some_public(10),
    "thin torrents": lambda store: store.dht_torrents.thin_page(0, 0, all_torrents=False),
    "peers of the DHT": lambda store: store.dht_torrents.some_peers(4, 10, all_torrents=False),
}


@pytest.mark.slow
async def test_merged_reads_go_on_and_say_which_shards_they_leave_out(group: Cluster) -> None:
    node, unavailable = without_main(group)
    async with store_at(group.url) as store:
        await fill(store)
        await store.users.add("7", ALICE)
        for name, read in MERGED.items():
            with noting_unavailable_shards() as missing:
                await read(store)
            assert not missing, name
        assert await sample_once(store)
        node.kill()
        await refresh(store)
        assert store.shards.unavailable == unavailable
        assert not await sample_once(store)  # the numbers would seem to fall
        for name, read in MERGED.items():
            with noting_unavailable_shards() as missing:
                await read(store)
            assert missing == set(unavailable), name
        present = [each for each in hashes() if store.shards.of(each).number not in unavailable]
        assert await store.torrents.count() == len(present)
        assert {each.info_hash for each in await store.torrents.top("seeders", 100)} == set(present)
        assert {each.info_hash for each in (await store.torrents.search("name"))[1]} == set(present)
        assert (await store.counters.totals())["leechers"] == 3 * len(present)

        cursor, walked, missing = 0, [], set[int]()
        with noting_unavailable_shards() as missing:
            while True:
                cursor, page = await store.torrents.page(cursor, 2)
                walked += [each.info_hash for each in page]
                if not cursor:
                    break
        assert (set(walked), missing) == (set(present), set(unavailable))


@pytest.mark.slow
async def test_what_only_the_shard_knows_is_unavailable_and_not_unknown(group: Cluster) -> None:
    node, unavailable = without_main(group)
    async with store_at(group.url) as store:
        await fill(store)
        by_hash = {each.info_hash: each for each in await store.torrents.get_all(hashes())}
        node.kill()
        await refresh(store)
        for info_hash in hashes():
            torrent_id = by_hash[info_hash].torrent_id
            if store.shards.of(info_hash).number in unavailable:
                calls: list[Awaitable[Any]] = [
                    store.torrents.get_all([info_hash]),
                    store.scores.place(torrent_id),
                    store.freeleech.give("7", torrent_id, 2_000_000_000),
                    store.torrents.remove(info_hash),
                ]
                for call in calls:
                    with pytest.raises(StoreUnavailable):
                        await call
            else:
                assert await store.torrents.get_all([info_hash])
        with pytest.raises(StoreUnavailable):  # it may be in an unavailable shard
            await store.scores.place("a-site's-own")


@pytest.mark.slow
async def test_scrapes_leave_out_torrents_of_unavailable_shards(group: Cluster) -> None:
    """Zeros would say that nobody has them. A scrape of nothing else fails, and over UDP each that would lack one."""
    node, unavailable = without_main(group)
    async with store_at(group.url) as store:
        await fill(store)
        node.kill()
        await refresh(store)
        present = [each for each in hashes() if store.shards.of(each).number not in unavailable]
        counts = await store.swarms.scrape(present)
        assert isinstance(counts, dict) and [each.leechers for each in counts.values()] == [3] * len(present)
        every = await store.swarms.scrape_all()
        assert isinstance(every, dict) and set(every) == set(present)
        assert await store.swarms.scrape(hashes()) == counts
        missing = [each for each in hashes() if each not in present]
        with pytest.raises(StoreUnavailable):
            await store.swarms.scrape(missing)
        scrapes = Scrapes(
            store.swarms,
            store.counters,
            Failures(store.counters),
            Limits(LimitSettings(), accounts="off"),
            LiveSettings(Settings()),
        )
        address = Address(bytes([11, 0, 0, 1]))
        reply = await scrapes.scrape(Scrape(tuple(hashes())), None, address)
        assert reply.files == counts
        assert (await scrapes.scrape(Scrape(tuple(present), complete=True), None, address)).files == counts
        with pytest.raises(ClientError, match="temporarily unavailable"):
            await scrapes.scrape(Scrape(tuple(hashes()), complete=True), None, address)


@pytest.mark.slow
async def test_the_change_feed_waits_and_says_for_which_shard(group: Cluster) -> None:
    """No change is passed over: the position stays, and the feed goes on when the shard is back."""
    node, unavailable = without_main(group)
    async with store_at(group.url) as store:
        await fill(store)

        async def settled() -> bool:
            return len((await store.changes.after(FIRST, 500)).changes) == 3 * len(hashes())

        await eventually(settled, PATIENCE_SECONDS)
        (position, *_) = (await store.changes.after(FIRST, 500)).changes
        rest = (await store.changes.after(position.id, 500)).changes
        node.kill()
        await refresh(store)
        with noting_unavailable_shards() as missing:
            page = await store.changes.after(position.id, 500)
        assert (page.changes, page.next, page.gap) == ([], position.id, False)
        assert missing == set(unavailable)
        node.start()

        async def goes_on() -> bool:
            return (await store.changes.after(page.next, 500)).changes == rest

        await eventually(goes_on, PATIENCE_SECONDS, ignored=(StoreUnavailable,))


@pytest.mark.slow
async def test_unique_users_of_other_shards_are_counted(group: Cluster) -> None:
    node, unavailable = without_main(group)
    place = PlaceNames("Norway", "", "")
    events = [UniqueUserEvent(info_hash, "203.0.113.7", place) for info_hash in hashes()]
    async with store_at(group.url) as store:
        await fill(store)
        node.kill()
        await refresh(store)
        lost = sum(store.shards.of(each).number in unavailable for each in hashes())
        assert await store.unique_users.count(events, 1_800_000_000) == len(events) - lost
        assert store.unique_users.dropped == lost
        assert len(await store.unique_users.top("torrents", count=100)) == len(events) - lost
        (country,) = await store.unique_users.top("countries")
        assert country == ("Norway", 1)


@pytest.mark.slow
@pytest.mark.parametrize("change", ["deleted", "disabled", "passkey changed"])
async def test_a_user_changed_meanwhile_is_refused_before_the_shard_serves_again(group: Cluster, change: str) -> None:
    """T2, T22: not one announce is let in after the node is back."""
    node, unavailable = without_main(group)
    async with store_at(group.url, "required") as store:
        await store.users.add("7", ALICE)
        await store.users.add("8", BOB)
        for number in range(SHARDS):
            assert isinstance(await announced(store, number, ALICE), Admitted)
        node.kill()
        await refresh(store)
        assert store.shards.unavailable == unavailable
        if change == "deleted":
            await store.users.delete("7")
        elif change == "disabled":
            await store.users.edit(ALICE, {"enabled": False})
        else:
            await store.users.rotate(ALICE)
        for number in set(range(SHARDS)) - set(unavailable):
            assert isinstance(await announced(store, number, ALICE), Refused)
        node.start()
        for number in unavailable:
            reply = await served(store, number, ALICE)
            assert isinstance(reply, Refused), change
            assert isinstance(await served(store, number, BOB), Admitted)


@pytest.mark.slow
async def test_a_shard_that_returns_waits_for_the_main_store_if_that_may_know_of_changes(group: Cluster) -> None:
    """The main store was lost after the shard, and a user deleted in between. Lost before it, it has changed no user
    since."""
    node, (number, *_) = without_main(group)
    main = main_of(group)
    async with store_at(group.url, "required") as store:
        await store.users.add("7", ALICE)
        assert isinstance(await announced(store, number, ALICE), Admitted)
        connection = store.shards[number].connection
        node.kill()
        await refresh(store)
        await store.users.delete("7")
        main.kill()
        with pytest.raises(StoreUnavailable):
            await store.tokens.list()
        assert not store.connection.was_lost_before(connection)
        node.start()
        Cluster.until(lambda: b"cluster_state:ok" in node.ask("CLUSTER", "INFO"))
        assert not await connection.reconnect()
        main.start()
        assert isinstance(await served(store, number, ALICE), Refused)


async def announced(store: Store, shard: int, passkey: str) -> Admitted | Refused:
    info_hash = hash_in(shard, shard)
    peer = int(passkey[0], 16)
    return await store.swarms.announce(update(peer, "s", info_hash=info_hash, passkey=passkey))


async def served(store: Store, shard: int, passkey: str) -> Admitted | Refused:
    """The first answer of a shard that was unavailable."""
    replies: list[Admitted | Refused] = []

    async def is_answered() -> bool:
        replies.append(await announced(store, shard, passkey))
        return True

    await eventually(is_answered, PATIENCE_SECONDS, ignored=(StoreUnavailable,))
    return replies[0]


@pytest.mark.slow
async def test_an_outage_of_a_shard_removes_no_peer_there_and_delays_no_other(group: Cluster) -> None:
    """T10: only the shard that was unavailable gives its peers time after its return."""
    node, unavailable = without_main(group)
    clock = Clock()
    async with store_at(group.url, clock=clock) as store:
        peers = [update(1, "s", info_hash=hash_in(number)) for number in range(SHARDS)]
        for shard, peer in zip(store.shards, peers, strict=True):
            await store.reapings[shard].heartbeat()
            await store.swarms.announce(peer)
        torrents = {each.info_hash: each for each in await store.torrents.get_all([p.info_hash for p in peers])}
        node.kill()
        await refresh(store)
        for _ in range(4):
            clock.now += 40
            for shard in store.shards:
                with suppress(StoreUnavailable):  # of another process, as the timer of this one stands still
                    await shard.connection.command("SET", shard.keys.heartbeat(), int(clock.now))
                    assert await store.reapings[shard].heartbeat() == 0
        node.start()
        for shard, peer in zip(store.shards, peers, strict=True):
            async with asyncio.timeout(PATIENCE_SECONDS):
                await shard.connection.until_available()
            assert bool(await store.reapings[shard].heartbeat()) == (shard.number in unavailable)
            torrent_id = torrents[peer.info_hash].torrent_id
            key = timeout_key(shard.keys, torrent_id, peer.peer_id)
            assert await shard.connection.command("DEL", key) == 1
            peer_key = shard.keys.peer(torrent_id, peer.peer_id)
            long_ago = int(clock.now) - store.rules.current.min_timeout
            await shard.connection.command("HSET", peer_key, "last_announce", long_ago)
            reaped = await store.reapings[shard].reap([(torrent_id, peer.peer_id.hex())])
            assert reaped == (shard.number not in unavailable)


@pytest.mark.slow
async def test_background_work_passes_over_unavailable_shards(group: Cluster) -> None:
    """Their leases are kept: no other tracker can take them. The tracker is ready while one shard is served."""
    node, unavailable = without_main(group)
    async with store_at(group.url) as store:
        await fill(store)
        reapers = [Reaper(store, shard, lambda: 3600.0, time.time) for shard in store.shards]
        leases = LeaseKeeper(store, "me", time.time)
        together = ShardReapers(reapers, store.reaping, leases)
        readiness = partial(find_problems, store.shards)
        await leases.round()
        node.kill()
        await refresh(store)
        await together.sweep_once(hurry=True)
        assert [number for number, reaper in enumerate(reapers) if not reaper.swept_at] == unavailable
        await leases.round()
        assert leases.held == list(range(SHARDS))
        assert await Maintenance(store).cleanup() is not None
        assert readiness() == []
        assert store.shards.notices() == [f"unavailable: {named(unavailable)} (the node does not answer)"]
        assert ready_text(store.shards.notices()) == f"degraded\n{store.shards.notices()[0]}\n"
        beside_another = partial(find_problems, store.shards, needs_all=True)
        assert beside_another() == store.shards.notices()
        for each in group.nodes:
            each.kill()
        with pytest.raises(StoreUnavailable):
            await refresh(store)
        await eventually(lambda: readiness() == ["no node of the cluster answers"])
        assert store.shards.notices() == []


@pytest.mark.slow
async def test_announces_go_on_while_the_main_store_is_unavailable(group: Cluster) -> None:
    """Of users who have been in a shard. Only the shards of the main store's node are unavailable with it."""
    node = main_of(group)
    prefixes = list(shard_prefixes(PREFIX, SHARDS))
    served_by_others = [n for n, each in enumerate(prefixes) if group.primary(each) is not node]
    async with store_at(group.url, "required") as store:
        await store.users.add("7", ALICE)
        await store.allow_list.add(b"-XX", "a client")
        assert await store.allow_list_cache.allows(update(1).peer_id)
        for number in range(SHARDS):
            assert isinstance(await announced(store, number, ALICE), Admitted)
        node.kill()
        await refresh(store)
        assert store.connection.unavailable
        for number in served_by_others:
            assert isinstance(await announced(store, number, ALICE), Admitted)
            await store.shards[number].connection.command("DEL", store.shards[number].keys.heartbeat())
        async with in_background(send_heartbeats(list(store.reapings.values()))):
            for number in served_by_others:
                shard = store.shards[number]
                await eventually(partial(shard.connection.command, "EXISTS", shard.keys.heartbeat()))
        store.allow_list_cache._clock = lambda: 1e9
        assert store.allow_list_cache.known(update(1).peer_id)
        with noting_unavailable_shards() as missing:
            assert await store.torrents.count() == len(served_by_others)
        assert missing == set(range(SHARDS)) - set(served_by_others)
        with noting_unavailable_shards() as missing:
            assert (await store.counters.totals())["seeders"] == 0
        assert MAIN in missing
        found = await store.users.find("7")
        assert found.passkey == ALICE
        calls: list[Awaitable[Any]] = [store.users.add("8", BOB), store.tokens.list()]
        for call in calls:
            with pytest.raises(StoreUnavailable):
                await call
        node.start()
        await asyncio.wait_for(store.connection.until_available(), PATIENCE_SECONDS)
        for number in range(SHARDS):
            assert isinstance(await served(store, number, ALICE), Admitted)


@pytest.mark.slow
async def test_tokens_and_sessions_hold_without_the_main_store_if_most_shards_have_them(group: Cluster) -> None:
    """Also those of before a restart of a shard. What is revoked stays revoked, even if one shard has a copy left."""
    node, stale = without_main(group)
    async with store_at(group.url) as store:
        tokens = store.tokens
        _, text = await tokens.create("site", "operate")
        _, revoked = await tokens.create("revoked", "admin")
        signed_in = await tokens.sign_in_by_token(text, 3600)
        by_link = await tokens.sign_in_by_link(await tokens.new_link(), 3600)
        of_revoked = await tokens.sign_in_by_token(revoked, 3600)
        assert signed_in is not None and by_link is not None and of_revoked is not None
        node.kill()
        with suppress(StoreUnavailable):
            await refresh(store)
        await tokens.revoke("revoked")
        ended = await tokens.sign_in_by_token(text, 3600)
        assert ended is not None
        await tokens.sign_out(ended[1])
        node.start()
        for number in stale:
            await asyncio.wait_for(store.shards[number].connection.until_available(), PATIENCE_SECONDS)
        main_of(group).kill()
        with suppress(StoreUnavailable):
            await refresh(store)
        assert store.shards.main_is_unavailable
        for session in (signed_in, by_link):
            assert await tokens.session(session[1]) == session[0]
        for secret in (of_revoked[1], ended[1]):
            assert await tokens.session(secret) is None
        found = await tokens.verify(text)
        assert found is not None and (found.name, found.role) == ("site", "operate")
        assert await tokens.verify(revoked) is None
        calls: list[Awaitable[Any]] = [
            tokens.create("x", "read"),
            tokens.list(),
            tokens.new_link(),
            tokens.revoke("site"),
        ]
        for call in calls:
            with pytest.raises(StoreUnavailable):
                await call


@pytest.mark.slow
async def test_lists_of_clients_are_known_to_a_tracker_that_starts_without_the_main_store(group: Cluster) -> None:
    main = main_of(group)
    async with store_at(group.url) as store:
        await store.upgrade()
        for prefix in (b"-XX", b"-YY"):
            await store.allow_list.add(prefix, "a client")
            await store.deny_list.add(prefix, "a reason")
        await store.copy_access(store.shards.others)
        await store.allow_list.remove(b"-YY")
        await store.deny_list.remove(b"-YY")
        await store.copy_access(store.shards.others)
    main.kill()
    other = next(node for node in group.nodes if node is not main)
    async with store_at(other.tcp_url) as store:
        await store.deny_list_cache.read()
        for prefix, is_listed in ((b"-XX", True), (b"-YY", False)):
            peer_id = PeerId(prefix + bytes(17))
            assert await store.allow_list_cache.allows(peer_id) == is_listed
            assert store.deny_list_cache.denies(peer_id) == is_listed
        assert store.deny_list_cache.reason(PeerId(b"-XX" + bytes(17))) == "a reason"


@pytest.mark.slow
async def test_a_lost_majority_is_the_cause_that_ready_and_log_name() -> None:
    with cluster() as group, structlog.testing.capture_logs() as logs:
        async with store_at(group.url) as store:
            readiness, cause = (partial(find_problems, store.shards), "no majority: 1 of 3 primaries answers")
            for node in group.nodes[1:]:
                node.kill()

            async def is_named() -> bool:
                with suppress(StoreUnavailable):
                    await refresh(store)
                return readiness() == [cause]

            await eventually(is_named, PATIENCE_SECONDS)
            with pytest.raises(StoreUnavailable, match=cause):
                await store.torrents.count()
        assert [line["event"] for line in logs if line.get("cause") == cause] == ["the cluster does not serve"]
        assert not any("ClusterDown" in str(line) for line in logs)


@pytest.mark.slow
async def test_no_node_is_left_to_ask_when_all_nodes_are_unavailable(group: Cluster) -> None:
    async with store_at(group.url) as store:
        await fill(store)
        for node in group.nodes:
            node.kill()
        for read in MERGED.values():
            with pytest.raises(StoreUnavailable):
                await read(store)
