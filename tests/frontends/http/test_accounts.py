"""Announces and scrapes with and without passkeys, with accounts off, optional and required: real store and sockets."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.core.harness import TrackerHarness, open_tracker
from tests.frontends.http import harness
from tests.frontends.http.harness import INFO_HASH, PEER_ID, QUERY, on_loops
from tests.raw_http import Client, connect
from tests.store.harness import ALICE, BOB
from tracker.bittorrent import Accounts, InfoHash, PeerId
from tracker.frontends.http.server import serve_http
from tracker.settings.model import LiveSettings, Settings

DISABLED, BLOCKED = "d" * 20, "l" * 20
SCRAPE = "scrape?info_hash=" + "".join(f"%{byte:02x}" for byte in INFO_HASH)
WARNING = "unknown passkey: this announce is anonymous; download the .torrent file again"
PRIVATE_ADDRESS = "; your address is private: peers outside your network cannot reach you"


@asynccontextmanager
async def tracking(redis_url: str, prefix: str, accounts: Accounts) -> AsyncIterator[tuple[TrackerHarness, Client]]:
    """A tracker with four users: two ordinary ones, one disabled, one who may not download."""
    settings = Settings.model_validate({"users": {"private": accounts}, "http": {"listen": ["127.0.0.1:0"]}})
    async with open_tracker(redis_url, prefix, settings) as tracker:
        users = tracker.store.users
        await users.add("7", ALICE)
        await users.add("8", BOB)
        await users.add("9", DISABLED)
        await users.edit(DISABLED, {"enabled": False})
        await users.add("10", BLOCKED, can_leech=False)
        live = LiveSettings(settings)
        async with (
            serve_http(tracker.decisions, live, fast_path=harness.fast_path) as addresses,
            connect(addresses[0]) as client,
        ):
            yield tracker, client


def told(reply: dict[bytes, Any]) -> str:
    """The failure or the warning of a reply."""
    text: bytes = reply.get(b"failure reason") or reply.get(b"warning message") or b""
    return text.decode().removesuffix(PRIVATE_ADDRESS.removeprefix("; ")).removesuffix("; ")


UNKNOWN = "unknown passkey: download the .torrent file again"
MISSING = "this tracker needs a passkey: download the .torrent file from its site"
MALFORMED = "the passkey in the announce URL is malformed"
ROWS: list[tuple[Accounts, str, str, str]] = [
    ("off", "", "", ""),
    ("off", ALICE, "", ""),
    ("off", "x" * 20, "", ""),
    ("off", "a:b", "refused", MALFORMED),
    ("off", DISABLED, "", ""),
    ("off", BLOCKED, "", ""),
    ("optional", "", "", ""),
    ("optional", ALICE, "7", ""),
    ("optional", "%61" * 20, "7", ""),
    ("optional", "x" * 20, "", WARNING),
    ("optional", "a:b", "", WARNING),
    ("optional", "%3Cpasskey%3E", "", WARNING),
    ("optional", "k" * 129, "", WARNING),
    ("optional", DISABLED, "refused", "your account is disabled"),
    ("optional", BLOCKED, "refused", "your account may not download"),
    ("required", "", "refused", MISSING),
    ("required", ALICE, "7", ""),
    ("required", "x" * 20, "refused", UNKNOWN),
    ("required", "a:b", "refused", MALFORMED),
    ("required", DISABLED, "refused", "your account is disabled"),
    ("required", BLOCKED, "refused", "your account may not download"),
]
"""(accounts, passkey in the path, the peer's user, the failure or warning)"""


@pytest.mark.parametrize(("accounts", "passkey", "user", "text"), ROWS)
@on_loops("uvloop")
async def test_a_passkey_decides_whose_peer_it_is(
    redis_url: str, prefix: str, accounts: Accounts, passkey: str, user: str, text: str
) -> None:
    async with tracking(redis_url, prefix, accounts) as (tracker, client):
        path = f"/{passkey}/announce" if passkey else "/announce"
        reply = (await client.get(f"{path}?{QUERY}&event=started")).reply
        assert told(reply) == text
        assert (b"failure reason" in reply) == (user == "refused")
        key = tracker.store.keys.peer("1", PeerId(PEER_ID))
        stored = await tracker.store.redis.hmget(key, "active", "user_id")
        assert stored == ([None, None] if user == "refused" else [b"1", user.encode() or None])
        await tracker.store.announce_counts.flush()
        assert (await tracker.store.users.find("7")).announces == (user == "7")


FORMS = (
    *("/{passkey}/{kind}?{query}", "/{kind}/{passkey}?{query}", "/{kind}?passkey={passkey}&{query}"),
    *("/{kind}?passkey={passkey}?{query}", "/{kind}.php?passkey={passkey}&{query}"),
)


@pytest.mark.parametrize("accounts", ["optional", "required"])
@pytest.mark.parametrize("form", FORMS)
@on_loops("uvloop")
async def test_each_form_of_an_announce_url_names_the_user(
    redis_url: str, prefix: str, accounts: Accounts, form: str
) -> None:
    async with tracking(redis_url, prefix, accounts) as (tracker, client):
        announce = form.format(kind="announce", passkey=ALICE, query=f"{QUERY}&event=started")
        assert told((await client.get(announce)).reply) == ""
        await tracker.store.announce_counts.flush()
        assert (await tracker.store.users.find("7")).announces == 1
        scrape = form.format(kind="scrape", passkey=ALICE, query=QUERY)
        assert (await client.get(scrape)).reply[b"files"][INFO_HASH][b"incomplete"] == 1
        unknown = form.format(kind="scrape", passkey="x" * 20, query=QUERY)
        assert told((await client.get(unknown)).reply) == (UNKNOWN if accounts == "required" else "")


@pytest.mark.parametrize("accounts", ["off", "optional"])
@pytest.mark.parametrize("passkey", ["", ALICE, "x" * 20, DISABLED])
@on_loops("uvloop")
async def test_all_clients_may_scrape_unless_accounts_are_required(
    redis_url: str, prefix: str, accounts: Accounts, passkey: str
) -> None:
    async with tracking(redis_url, prefix, accounts) as (_, client):
        await client.get(f"/announce?{QUERY}")
        reply = (await client.get(f"/{passkey and passkey + '/'}{SCRAPE}")).reply
        assert reply[b"files"][INFO_HASH][b"incomplete"] == 1


@on_loops("uvloop")
async def test_one_connection_carries_announces_of_users_and_anonymous_peers(redis_url: str, prefix: str) -> None:
    """A proxy's connection does: the passkey of one request does not stay for the next."""
    async with tracking(redis_url, prefix, "optional") as (tracker, client):
        for number, path in enumerate(("/announce", f"/{ALICE}/announce", "/announce", f"/{BOB}/announce")):
            await client.get(f"{path}?{QUERY.replace('port=6881', f'port={7000 + number}')}&event=started")
        owners = await tracker.store.redis.smembers(tracker.store.keys.swarm_peers(InfoHash(INFO_HASH)))
        keys = [tracker.store.keys.peer("1", PeerId(bytes.fromhex(one.decode()))) for one in owners]
        users = sorted([await tracker.store.redis.hget(key, "user_id") or b"" for key in keys])
        assert users == [b"", b"7", b"8"]
