"""Projects without passkeys: a claimant names its port, and its address and port are looked for in the swarm.

Announces and requests come through the real sockets of both listeners; the test moves the clock.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.core.harness import open_tracker
from tests.frontends.http.harness import INFO_HASH, PEER_ID
from tests.frontends.work.conftest import Reply, Site, listening
from tests.raw_http import connect
from tests.store.work.harness import check_work, claim_of
from tests.store.work.volunteers import wait
from tracker.bittorrent import InfoHash
from tracker.errors import ClientError
from tracker.frontends.http.server import serve_http
from tracker.settings.model import LiveSettings, Settings

ITEM = INFO_HASH.hex()
PORT = 6881
HOUR = 3600


@dataclass
class Volunteers:
    """A tracker without accounts, with project ``proj`` that verifies addresses and wants an hour of seeding."""

    site: Site
    address: str
    """Of the listener for announces."""

    async def request(self, name: str, **fields: Any) -> Reply:
        return await self.site.ask("/proj/request", {"downloader": name, "api_version": "2", **fields})

    async def announce(self, *, left: int = 0, event: str = "", port: int = PORT) -> None:
        hexed = ["".join(f"%{byte:02x}" for byte in raw) for raw in (INFO_HASH, PEER_ID)]
        query = "info_hash={}&peer_id={}&uploaded=0&downloaded=0".format(*hexed)
        async with connect(self.address) as client:
            reply = await client.get(f"/announce?{query}&port={port}&left={left}&event={event}")
        assert b"8:interval" in reply.body, reply

    async def state(self, name: str) -> str:
        claim = await claim_of(self.site.store, "proj", name, ITEM)
        return claim.state if claim is not None else "none"

    async def done(self) -> list[str]:
        return [entry.claimant for entry in await self.site.store.work.log.newest("proj")]


@pytest.fixture
async def volunteers(redis_url: str, prefix: str) -> AsyncIterator[Volunteers]:
    settings = Settings.model_validate({"http": {"listen": ["127.0.0.1:0"]}, "work": {"listen": ["127.0.0.1:0"]}})
    async with (
        open_tracker(redis_url, prefix, settings) as tracker,
        serve_http(tracker.decisions, LiveSettings(settings)) as addresses,
        listening(settings, tracker.store) as site,
    ):
        await site.store.pass_time(0)
        await site.store.torrents.add(InfoHash(INFO_HASH))
        await site.project(kind="seeding", verify="address", keep_done_days=1, seed_hours=1, start_budget=5)
        await site.add(ITEM, copies=2)
        yield Volunteers(site, addresses[0])


async def test_a_seeder_at_the_address_and_port_is_done_by_itself(volunteers: Volunteers) -> None:
    granted = await volunteers.request("ada_1", port=PORT)
    assert granted.status == 200 and granted.json["item_name"] == ITEM
    store = volunteers.site.store
    await volunteers.announce(left=100, event="started")
    await wait(store, 60)
    assert await volunteers.state("ada_1") == "seen"
    await wait(store, HOUR)
    assert await volunteers.state("ada_1") == "seen"
    await volunteers.announce(event="completed")
    await wait(store, HOUR - 60)
    assert await volunteers.state("ada_1") == "seeding"
    mine = (await volunteers.site.ask("/proj/mine?downloader=ada_1")).json["items"]
    assert [(row["state"], row["verified_seconds"]) for row in mine] == [("seeding", HOUR - 60)]
    done = await volunteers.site.ask("/proj/done", {"downloader": "ada_1", "item": ITEM, "token": "x"})
    assert done.status == 410
    token = granted.json["token"]
    done = await volunteers.site.ask("/proj/done", {"downloader": "ada_1", "item": ITEM, "token": token})
    assert (done.status, done.json) == (409, {"missing_seconds": 60})
    await wait(store, 60)
    assert await volunteers.done() == ["ada_1"]
    assert (await check_work(store)).wanted == 1


@pytest.mark.parametrize(("left", "port"), [(0, PORT + 1), (100, PORT)])
async def test_another_port_or_a_leecher_does_not_count(volunteers: Volunteers, left: int, port: int) -> None:
    await volunteers.request("ada_1", port=PORT)
    await volunteers.announce(left=left, event="started", port=port)
    await wait(volunteers.site.store, 2 * HOUR)
    assert await volunteers.done() == []


async def test_who_never_comes_lapses(volunteers: Volunteers) -> None:
    await volunteers.request("ada_1", port=PORT)
    await wait(volunteers.site.store, 6 * HOUR + 600, every=600)
    assert await volunteers.state("ada_1") == "none"
    await volunteers.announce(event="started")
    await wait(volunteers.site.store, HOUR)
    assert await volunteers.done() == ["ada_1"]  # late, and once


async def test_one_seeder_is_one_copy_whatever_names_it_gives(volunteers: Volunteers) -> None:
    assert (await volunteers.request("ada_1", port=PORT)).status == 200
    assert (await volunteers.request("ada_2", port=PORT)).status == 404
    await volunteers.announce(event="started", port=PORT + 1)
    assert (await volunteers.request("ada_3", port=PORT + 1)).status == 404  # it seeds already
    assert (await volunteers.request("ada_4", port=PORT + 2)).status == 200


async def test_only_who_has_the_token_gives_a_claim_back(volunteers: Volunteers) -> None:
    granted = (await volunteers.request("ada_1", port=PORT)).json
    body = {"downloader": "ada_1", "item": ITEM}
    assert (await volunteers.site.ask("/proj/release", body)).status == 400
    assert (await volunteers.site.ask("/proj/release", {**body, "token": "1-1"})).text == "Invalid item.\n"
    assert await volunteers.state("ada_1") == "claimed"
    reply = await volunteers.site.ask("/proj/release", {**body, "token": granted["token"]})
    assert reply.text == "Released OK.\n"


@pytest.mark.parametrize("port", [None, 0, 65_536, -1, True, "6881", 1.5])
async def test_a_claimant_names_its_port(volunteers: Volunteers, port: object) -> None:
    reply = await volunteers.request("ada_1", port=port)
    assert reply.status == 400 and "port" in reply.text
    assert (await volunteers.request("a b", port=PORT)).status == 400
    assert (await check_work(volunteers.site.store)).wanted == 2


async def test_private_torrents_are_for_users_only(volunteers: Volunteers) -> None:
    """W30."""
    await volunteers.site.store.torrents.edit(InfoHash(INFO_HASH), {"private": "1"})
    assert (await volunteers.request("ada_1", port=PORT)).status == 404
    assert (await volunteers.site.ask("/proj/feed.rss?downloader=ada_1")).status == 404


async def test_the_page_says_that_it_is_weaker(volunteers: Volunteers) -> None:
    assert "by address and port only" in (await volunteers.site.ask("/proj/")).text


async def test_claimants_stay_of_one_kind(volunteers: Volunteers) -> None:
    """A user id and a name may read alike."""
    projects = volunteers.site.store.work.projects
    with pytest.raises(ClientError, match="stays"):
        await projects.edit("proj", {"verify": "announce"})
    await volunteers.site.project("users", kind="seeding", verify="announce", keep_done_days=1)
    with pytest.raises(ClientError, match="stays"):
        await projects.edit("users", {"verify": "address"})
    with pytest.raises(ClientError, match="passkeys"):
        await projects.edit("proj", {"passkeys": True})
    with pytest.raises(ClientError, match="verifies nothing"):
        await volunteers.site.project("texts", verify="address")
