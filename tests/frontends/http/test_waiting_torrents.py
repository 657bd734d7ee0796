"""Torrents that will soon be served: clients are told to come back within half a minute. Real store and sockets."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.core.harness import TrackerHarness, at, open_tracker
from tests.frontends.http import harness
from tests.frontends.http.harness import INFO_HASH, QUERY, on_loops
from tests.frontends.udp.harness import HASH, announce_packet
from tests.frontends.udp.harness import serving as serving_udp
from tests.raw_http import Client, connect
from tests.store.harness import ALICE, Store
from tracker.bittorrent import Accounts, InfoHash, Scrape
from tracker.core.counter_names import UDP
from tracker.frontends.http.server import serve_http
from tracker.settings.model import LiveSettings, Settings

TORRENT = InfoHash(INFO_HASH)
PENDING = b"this torrent waits for approval"
NOT_REGISTERED = b"this torrent is not registered with this tracker"
USUAL = (30, 1800, 1800)
QUICK = (1, 30, 30)
"""``retry in``, ``interval`` and ``min interval``."""


@asynccontextmanager
async def tracking(
    redis_url: str, prefix: str, accounts: Accounts = "off", mode: str = "registered"
) -> AsyncIterator[tuple[Store, TrackerHarness, Client]]:
    settings = Settings.model_validate(
        {"users": {"private": accounts}, "torrents": {"mode": mode}, "http": {"listen": ["127.0.0.1:0"]}}
    )
    async with open_tracker(redis_url, prefix, settings) as tracker:
        await tracker.store.users.add("7", ALICE)
        live = LiveSettings(settings)
        async with (
            serve_http(tracker.decisions, live, fast_path=harness.fast_path) as addresses,
            connect(addresses[0]) as client,
        ):
            yield tracker.store, tracker, client


async def told(client: Client, passkey: str = "", event: str = "") -> tuple[bytes, tuple[int | bytes, int, int]]:
    """The failure reason of an announce, and its times."""
    reply = (await client.get(f"/{passkey and passkey + '/'}announce?{QUERY}&event={event}")).reply
    return reply.get(b"failure reason", b""), (reply.get(b"retry in", b""), reply[b"interval"], reply[b"min interval"])


@on_loops("uvloop")
@pytest.mark.parametrize("mode", ["open", "registered"])
async def test_a_pending_torrent_is_retried_soon_and_works_when_it_is_approved(
    redis_url: str, prefix: str, mode: str
) -> None:
    async with tracking(redis_url, prefix, mode=mode) as (store, tracker, client):
        await store.torrents.add(TORRENT, {"enabled": "pending"})
        for event in ("started", "", "completed"):
            assert await told(client, event=event) == (PENDING, QUICK)
        assert (await told(client, event="stopped"))[0] == b"", "a stop needs no permission"
        assert await store.redis.exists(store.keys.swarm_peers(TORRENT)) == 0
        assert tracker.clients_seen[0][1] == "pending"
        await store.torrents.edit(TORRENT, {"reason": "see the forum"})
        assert await told(client) == (b"see the forum", QUICK)
        await store.torrents.edit(TORRENT, {"enabled": "1"})
        assert (await told(client))[0] == b""
        assert (await tracker.decisions.scrape(Scrape((TORRENT,)), None, at("11.0.0.1"))).files[TORRENT].leechers


async def test_over_udp_there_is_the_text(redis_url: str, prefix: str) -> None:
    settings = Settings.model_validate({"udp": {"listen": ["127.0.0.1:0"]}})
    async with open_tracker(redis_url, prefix, settings) as tracker:
        await tracker.store.torrents.add(InfoHash(HASH), {"enabled": "pending"})
        async with serving_udp(tracker=tracker.decisions.over(UDP)) as served:  # type: ignore[arg-type]
            client = served.client()
            for enabled, error in (("pending", True), ("1", False)):
                await tracker.store.torrents.edit(InfoHash(HASH), {"enabled": enabled})
                reply = await client.ask(announce_packet(await client.connect()))
                assert (reply[:4] == b"\0\0\0\3", reply[8:] == PENDING) == (error, error)


@on_loops("uvloop")
async def test_peers_of_a_torrent_that_becomes_pending_are_refused(redis_url: str, prefix: str) -> None:
    """Also their regular announces; a scrape shows zeros."""
    async with tracking(redis_url, prefix) as (store, tracker, client):
        await store.torrents.add(TORRENT)
        for event in ("started", "", ""):
            assert (await told(client, event=event))[0] == b""
        await store.torrents.edit(TORRENT, {"enabled": "pending"})
        assert await told(client) == (PENDING, QUICK)
        scraped = await tracker.decisions.scrape(Scrape((TORRENT,)), None, at("11.0.0.1"))
        assert scraped.files[TORRENT].leechers == 0


@on_loops("uvloop")
@pytest.mark.parametrize("accounts", ["optional", "required"])
async def test_a_user_is_told_to_retry_a_new_torrent_soon_for_ten_minutes(
    redis_url: str, prefix: str, accounts: Accounts
) -> None:
    async with tracking(redis_url, prefix, accounts) as (store, tracker, client):
        clock = store.clock
        for event in ("started", "", "completed"):
            assert await told(client, ALICE, event) == (NOT_REGISTERED, QUICK)
            clock.now += 199
        clock.now += 3
        assert await told(client, ALICE) == (NOT_REGISTERED, USUAL)
        assert [(each.info_hash, each.at) for each in await store.unregistered.of("7")] == [
            (TORRENT, int(clock.now) - 600)
        ]
        assert {label for _, label in tracker.clients_seen} == {"unknown torrent"}
        await store.torrents.add(TORRENT)
        assert (await told(client, ALICE, "started"))[0] == b""
        assert await store.unregistered.of("7") == []


@on_loops("uvloop")
@pytest.mark.parametrize("accounts", ["off", "optional"])
@pytest.mark.parametrize("passkey", ["", "x" * 20])
async def test_an_anonymous_announce_is_not_kept(redis_url: str, prefix: str, accounts: Accounts, passkey: str) -> None:
    async with tracking(redis_url, prefix, accounts) as (store, _, client):
        for event in ("started", ""):
            assert await told(client, passkey, event) == (NOT_REGISTERED, USUAL)
        assert [key async for key in store.redis.scan_iter(f"{prefix}*unregistered*")] == []
