"""Announces and scrapes on a real store: replies, refusals and counters (rows T1, T2, T18, T20, T25)."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from loadtest.servers import Server
from tests.core.harness import SECRET, MakeTracker, TrackerHarness, at, open_tracker
from tests.store.harness import ALICE, BOB, info_hash, peer_id, timeout_key
from tracker.bittorrent import Announce, AnnounceOverSocket, Digits, Event, Reply, Scrape, ScrapeFile, ScrapeReply
from tracker.core.counter_names import UDP, WEBSOCKET
from tracker.core.intervals import steps, throttled_steps
from tracker.core.warning_messages import FREELEECH, NEUTRAL, NO_PEERS_NOW, NO_SLOT, PRIVATE_ADDRESS
from tracker.refusals import Busy, Refusal
from tracker.runtime.store import swarm_rules
from tracker.settings.model import Settings
from tracker.settings.public import AnnounceSettings
from tracker.wire.endpoint import SocketId, pack_socket


@pytest.fixture
async def make_tracker(any_server: Server, prefix: str) -> AsyncIterator[MakeTracker]:
    async with AsyncExitStack() as stack:

        async def make(secret: bytes = SECRET, **sections: dict[str, Any]) -> TrackerHarness:
            settings = Settings.model_validate(sections)
            return await stack.enter_async_context(open_tracker(any_server.url, prefix, settings, secret))

        yield make


@pytest.fixture
async def tracker(make_tracker: MakeTracker) -> TrackerHarness:
    return await make_tracker()


async def test_a_reply_has_counts_peers_and_the_external_address(tracker: TrackerHarness) -> None:
    """T1, and the external address of BEP 24."""
    first = await tracker.announce(1, "started")
    assert (first.seeders, first.leechers, first.completions) == (0, 1, 0)
    assert first.peers == first.peers6 == first.peer_ids == b"" and first.warning is None
    assert first.external_address == at("11.0.0.1")
    second = await tracker.announce(2, "started", bytes_left=0)
    assert second.peers == at("11.0.0.1") + (6881).to_bytes(2, "big")
    assert (second.seeders, second.leechers, second.peer_ids) == (1, 1, b"")
    third = await tracker.announce(3, "started", address="2600::3")
    assert third.external_address == at("2600::3") and len(third.peers) == 12
    assert (await tracker.announce(1)).peers6 == at("2600::3") + (6881).to_bytes(2, "big")


@pytest.mark.parametrize(
    ("compact", "no_peer_id", "with_ids"), [(True, False, False), (False, True, False), (False, False, True)]
)
async def test_only_the_long_form_has_peer_ids(
    tracker: TrackerHarness, compact: bool, no_peer_id: bool, with_ids: bool
) -> None:
    await tracker.announce(1)
    reply = await tracker.announce(2, compact=compact, no_peer_id=no_peer_id)
    assert reply.peer_ids == (peer_id(1) if with_ids else b"")


async def test_a_reply_may_have_peers_of_the_own_family_only(tracker: TrackerHarness) -> None:
    """At a join, at an update of a peer and of a peer with two families, and for seeders."""
    for number in range(2, 5):
        await tracker.announce(number)
        await tracker.announce(number + 10, address=f"2600::{number}", bytes_left=0)
    for address, counts in (("11.0.0.1", (18, 0)), ("2600::1", (0, 54))):
        for _ in range(2):
            reply = await tracker.announce(1, address=address, key=b"1F3A9C07", own_family=True)
            assert (len(reply.peers), len(reply.peers6)) == counts
    reply = await tracker.announce(1, address="11.0.0.1", key=b"1F3A9C07", bytes_left=0, own_family=True)
    assert (len(reply.peers), len(reply.peers6)) == (18, 0)
    reply = await tracker.announce(2)
    assert len(reply.peers) == 18 and len(reply.peers6) == 72, "others get both families"


async def test_a_client_is_one_peer_over_http_and_udp(tracker: TrackerHarness) -> None:
    """rtorrent writes its key in lower case over HTTP. Here it has another address over UDP."""
    await tracker.announce(1, key=b"0a1b2c3d")
    moved = await tracker.announce(1, key=b"0A1B2C3D", address="11.9.9.9", own_family=True)
    assert (moved.leechers, moved.warning) == (1, None)
    stranger = await tracker.announce(1, key=b"0A1B2C3E", address="11.9.9.8", own_family=True)
    assert stranger.leechers == 2


async def test_intervals_are_jittered_within_their_bounds(make_tracker: MakeTracker) -> None:
    tracker = await make_tracker(
        announce={"interval_seconds": 1000, "interval_jitter": 0.2, "min_interval_seconds": 600}
    )
    replies = [await tracker.announce(1) for _ in range(100)]
    intervals = {reply.interval_seconds for reply in replies}
    assert min(intervals) >= 1000 and max(intervals) < 1200
    assert len(intervals) > 5 and max(intervals) - min(intervals) > 100
    assert {reply.min_interval_seconds for reply in replies} == {600}


async def test_the_min_interval_never_exceeds_the_interval(make_tracker: MakeTracker) -> None:
    tracker = await make_tracker(announce={"interval_seconds": 300, "interval_jitter": 0, "min_interval_seconds": 900})
    reply = await tracker.announce(1)
    assert (reply.interval_seconds, reply.min_interval_seconds) == (300, 300)


@pytest.mark.parametrize(("interval", "reap", "jitter"), [(1800, 60, 0.5), (1800, 2700, 0.0), (10, 2700, 0.5)])
async def test_the_timeout_follows_the_interval_of_the_reply(
    make_tracker: MakeTracker, interval: int, reap: float, jitter: float
) -> None:
    """T5: 1.5 times the interval of the reply, at least the reap interval."""
    tracker = await make_tracker(
        announce={"interval_seconds": interval, "interval_jitter": jitter}, reaper={"interval_seconds": reap}
    )
    for _ in range(10):
        sent_seconds = (await tracker.announce(1)).interval_seconds
        left = await tracker.store.redis.pttl(timeout_key(tracker.store.keys, 1, peer_id(1)))
        expected = max(1.5 * sent_seconds, reap) * 1000
        assert expected - 1000 < left <= expected


@pytest.mark.parametrize(
    ("wanted", "default", "max_peers", "given"),
    [
        (None, 5, 10, 5),
        (0, 5, 10, 0),
        (7, 5, 10, 7),
        (11, 5, 10, 10),
        (2**63, 5, 10, 10),
        (-1, 5, 10, 0),
        (None, 8, 3, 3),
    ],
)
async def test_a_reply_has_the_wanted_number_of_peers_within_the_limits(
    make_tracker: MakeTracker, wanted: int | None, default: int, max_peers: int, given: int
) -> None:
    """T25: 0 is honoured; the maximum limits the wanted number and the default."""
    tracker = await make_tracker(announce={"peers_default": default, "peers_max": max_peers})
    for number in range(2, 15):
        await tracker.announce(number, "started")
    reply = await tracker.announce(1, "started", peers_wanted=wanted)
    assert len(reply.peers) == 6 * given


async def test_a_stopped_peer_gets_no_peers(tracker: TrackerHarness) -> None:
    await tracker.announce(2)
    await tracker.announce(1)
    reply = await tracker.announce(1, "stopped", port=0, peers_wanted=50)
    assert (reply.peers, reply.peers6, reply.leechers, reply.warning) == (b"", b"", 1, None)


async def test_a_warning_says_why_a_peer_is_not_listed(make_tracker: MakeTracker) -> None:
    tracker = await make_tracker(limits={"address_entries_per_torrent": 2})
    assert (await tracker.announce(1, "started", key=b"1F3A9C07")).warning is None
    without_key = await tracker.announce(1, "started", address="11.0.0.9")
    assert (without_key.warning or "").startswith("your peer id is in use from another address")
    assert (await tracker.announce(2, "started", address="11.0.0.1")).warning is None
    displaced = await tracker.announce(1, key=b"1F3A9C07")
    assert (displaced.warning or "").startswith("another client uses your address and port")
    assert (await tracker.announce(3, "started", address="11.0.0.1", port=2)).warning is None
    over = await tracker.announce(4, "started", address="11.0.0.1", port=3)
    assert (over.warning or "").startswith("too many peers from your address")
    assert len(over.peers) == 12 and (over.seeders, over.leechers) == (0, 2)
    assert len(tracker.joined) == 3, "a peer that is not listed has not joined"


async def test_a_key_contained_in_the_peer_id_proves_nothing(tracker: TrackerHarness) -> None:
    """Other peers know the peer id, and aria2's key is the end of its peer id."""
    await tracker.announce(1, "started", key=bytes(peer_id(1)[-8:]))
    assert "key" not in await tracker.peer(1)
    forged = await tracker.announce(1, "stopped", address="11.0.0.9", key=bytes(peer_id(1)[-8:]))
    assert forged.leechers == 1
    await tracker.announce(2, "started", key=b"1F3A9C07")
    assert len((await tracker.peer(2))["key"]) == 8


@pytest.mark.parametrize(
    ("limits", "listed"),
    [({}, 2), ({"exempt": ["11.0.0.0/24"]}, 4), ({"enabled": False}, 4)],
    ids=["bounded", "exempt", "no limits"],
)
async def test_entries_per_address_are_limited_unless_exempt(
    make_tracker: MakeTracker, limits: dict[str, Any], listed: int
) -> None:
    tracker = await make_tracker(limits={"address_entries_per_torrent": 2, **limits})
    for number in range(1, 5):
        answer = await tracker.announce(number, "started", address="11.0.0.1", port=6880 + number)
    assert answer.leechers == listed


async def test_a_peer_with_a_private_address_is_warned_once(tracker: TrackerHarness) -> None:
    await tracker.announce(9, "started")  # from a public address
    for address in ("192.168.1.7", "fd00::7", "127.0.0.1"):
        number = int(at(address)[-1])
        warnings = [
            (await tracker.announce(number, event, address=address)).warning is not None
            for event in ("started", "", "completed", "stopped", "started")
        ]
        assert warnings == [True, False, False, False, False]
        await tracker.announce(number, "stopped", address=address)


async def test_private_addresses_can_be_refused(make_tracker: MakeTracker) -> None:
    tracker = await make_tracker(announce={"private_addresses": "refuse"})
    error = await tracker.refused(1, address="10.0.0.1")
    assert "your address is private" in error.text and error.retry_in == 60
    assert (await tracker.announce(1)).leechers == 1
    figures, failures = await tracker.counted()
    assert figures == {"requests": 2, "announces": 1} and list(failures.values()) == [1]


BOGONS = (
    *("0.1.1.1", "10.1.1.1", "100.64.1.1", "127.1.1.1", "169.254.1.1", "172.16.1.1", "192.0.0.1", "192.0.2.1"),
    *("192.168.1.1", "198.18.1.1", "198.51.100.1", "203.0.113.1", "224.1.1.1", "240.1.1.1", "255.255.255.255"),
    *("::", "::1", "::ffff:10.1.1.1", "::10.1.1.1", "64:ff9b::10.1.1.1", "100::1", "2001::1", "2001:db8::1"),
    *("2002:a01:101::1", "3fff::1", "fc00::1", "fe80::1", "ff02::1"),
)


async def test_no_bogon_joins_a_swarm_when_private_addresses_are_refused(make_tracker: MakeTracker) -> None:
    """Whatever it announces, only counters are written."""
    tracker = await make_tracker(announce={"private_addresses": "refuse"})
    before = await tracker.store.dump()
    for number, address in enumerate(BOGONS):
        for event in ("started", "completed", ""):
            await tracker.refused(number, event, address=address, bytes_left=0)
        await tracker.announce(number, "stopped", address=address)  # which removes no peer
    assert await tracker.store.dump() == before


async def test_public_mode_ignores_passkeys(tracker: TrackerHarness) -> None:
    await tracker.announce(1, passkey="whatever")
    assert "user_id" not in await tracker.peer()
    assert (await tracker.announce(1)).leechers == 1  # the same peer, without it


async def test_every_refusal_has_its_text_and_label(make_tracker: MakeTracker) -> None:
    """T2: texts are fixed and counted by label. An operator's own reason is shown, but never becomes a label."""
    tracker = await make_tracker(
        users={"private": "required"}, torrents={"mode": "registered"}, clients={"allow_list": True}
    )
    store = tracker.store
    for number in (1, 2, 3, 4, 5, 6):
        await store.torrents.add(info_hash(number))
    await store.torrents.edit(info_hash(2), {"enabled": "0"})
    await store.torrents.edit(info_hash(3), {"enabled": "0", "reason": "broken file: use v2"})
    await store.torrents.deny(info_hash(4), "")
    await store.torrents.deny(info_hash(5), "asked for by its author")
    await store.redis.set(store.keys.info_hash(info_hash(7)), "abc")
    await store.users.add("7", ALICE)
    await store.users.add("8", "d" * 20)
    await store.users.edit("d" * 20, {"enabled": False})
    await store.users.add("9", "l" * 20, can_leech=False)
    await store.users.add("10", "e" * 20, enabled=False, reason="pay your bill: see the site")
    await store.allow_list.add(b"-XX")
    cases: list[tuple[dict[str, Any], str, str, int | str]] = [
        (
            {"peer_id": b"-YY0001-" + bytes(12)},
            "your client is not allowed",
            "your client is not allowed on this tracker",
            60,
        ),
        ({"passkey": None}, "this tracker needs a passkey", "no passkey", 60),
        ({"passkey": "n" * 20}, "unknown passkey", "unknown passkey", 60),
        ({"passkey": "d" * 20}, "your account is disabled", "user disabled", 60),
        ({"passkey": "e" * 20}, "pay your bill: see the site", "user disabled", 60),
        ({"passkey": "l" * 20}, "your account may not download", "may not leech", 60),
        ({"info_hash": info_hash(99)}, "this torrent is not registered", "unknown torrent", 1),
        ({"info_hash": info_hash(2)}, "this torrent is disabled", "disabled", 60),
        ({"info_hash": info_hash(3)}, "broken file: use v2", "disabled", 60),
        ({"info_hash": info_hash(4)}, "this torrent is not allowed", "denied", "never"),
        ({"info_hash": info_hash(5)}, "asked for by its author", "denied", "never"),
        ({"info_hash": info_hash(7)}, "invalid torrent data", "bad torrent id", 60),
    ]
    before = await store.dump()
    for changes, text, label, retry_in in cases:
        error = await tracker.refused(1, "started", **{"passkey": ALICE, **changes})
        assert error.text.startswith(text) and (error.label, error.retry_in) == (label, retry_in)
    assert await store.redis.unlink(store.keys.user_unregistered(7)) == 1
    assert await store.dump() == before
    assert (await tracker.announce(1, "started", passkey=ALICE)).leechers == 1
    figures, failures = await tracker.counted()
    assert figures == {"requests": len(cases) + 1, "announces": 1}
    labels = [label for _, _, label, _ in cases]
    assert failures == {label: labels.count(label) for label in labels}


async def test_the_limits_of_open_mode_have_texts(make_tracker: MakeTracker) -> None:
    tracker = await make_tracker(torrents={"max_torrents": 2, "new_per_address_hour": 1})
    await tracker.announce(1, info_hash=info_hash(1))
    assert (await tracker.refused(1, info_hash=info_hash(2))).label == "too many new torrents"
    await tracker.announce(2, info_hash=info_hash(2))
    assert (await tracker.refused(3, info_hash=info_hash(3))).label == "too many torrents"
    tracker = await make_tracker(torrents={"new_per_network_hour": 2})
    error = await tracker.refused(4, info_hash=info_hash(4))
    assert error.text == "too many new torrents from your network; try again in an hour"


async def test_an_unexpected_store_error_is_an_internal_error(tracker: TrackerHarness) -> None:
    """Its cause is logged, not sent."""
    await tracker.store.redis.set(tracker.store.keys.torrent(info_hash(1)), "a string instead of a hash")
    error = await tracker.refused(1)
    assert (error.text, error.label, error.retry_in) == ("internal error", "internal error", 5)


async def test_an_unavailable_store_has_its_own_failure(make_tracker: MakeTracker) -> None:
    """For announces, scrapes and the allow list. The refusals are counted when the store is available again."""
    tracker = await make_tracker(users={"private": "required"}, clients={"allow_list": True})
    connection = tracker.store.connection
    connection._lost(OSError())
    error = await tracker.refused(1)
    assert (error.label, error.retry_in) == ("store unavailable", 1) and "will retry" in error.text
    with pytest.raises(Refusal) as caught:
        await tracker.scrape(1, passkey=ALICE)
    assert (caught.value.label, caught.value.retry_in) == ("store unavailable", 1)
    assert await connection.reconnect()
    assert await tracker.counted() == ({"requests": 2}, {"store unavailable": 2})


async def test_refusals_before_a_decision_are_counted(tracker: TrackerHarness) -> None:
    tracker.decisions.refused(Refusal("info_hash is missing").label)
    assert await tracker.counted() == ({"requests": 1}, {"info_hash is missing": 1})


async def test_the_allow_list_applies_only_when_enabled(make_tracker: MakeTracker) -> None:
    """T21: a change applies after some seconds of the process's clock."""
    assert (await (await make_tracker()).announce(1)).leechers == 1
    tracker = await make_tracker(clients={"allow_list": True})
    assert (await tracker.refused(2)).text == "your client is not allowed on this tracker"
    await tracker.store.allow_list.add(b"-XX0001-")
    tracker.store.clock.now += 5
    assert (await tracker.announce(2)).leechers == 2


async def test_the_digest_of_a_key_depends_on_the_secret(tracker: TrackerHarness) -> None:
    """The store does not reveal a client's key, and two stores do not reveal that they hold the same one."""
    key, secrets = b"8 \xffbytes", {1: SECRET, 2: b"another" * 5}
    for number, secret in secrets.items():
        await tracker.store.redis.set(tracker.store.keys.secret(), secret)
        await tracker.announce(number, key=key)
        digest = hashlib.sha1(secret + key, usedforsecurity=False).hexdigest()[:8]
        assert (await tracker.peer(number))["key"] == digest.encode()
    await tracker.announce(3)
    assert "key" not in await tracker.peer(3)
    moved = await tracker.announce(2, key=key, address="11.9.9.9")  # the key proves that it is the same peer
    assert moved.leechers == 3 and (await tracker.peer(2))["endpoints"][:4] == at("11.9.9.9")


async def test_a_scrape_returns_the_counts_of_each_torrent(tracker: TrackerHarness) -> None:
    """T18: an unknown torrent has zeros; the reply has the minimum time between scrapes."""
    await tracker.announce(1, bytes_left=0)
    await tracker.announce(2)
    await tracker.announce(3, "paused")
    assert await tracker.scrape(1, 2) == {info_hash(1): ScrapeFile(1, 2, 0, 1), info_hash(2): ScrapeFile()}
    reply = await tracker.decisions.scrape(Scrape((info_hash(1),)), None, at("11.0.0.1"))
    assert reply.min_request_interval_seconds == 900
    assert await tracker.counted() == ({"requests": 5, "announces": 3, "scrapes": 2}, {})


async def test_private_scrapes_need_a_passkey(make_tracker: MakeTracker) -> None:
    tracker = await make_tracker(users={"private": "required"})
    await tracker.store.users.add("7", ALICE)
    assert await tracker.scrape(1, passkey=ALICE) == {info_hash(1): ScrapeFile()}
    for passkey, reason in ((None, "needs a passkey"), ("", "needs a passkey"), ("n" * 20, "unknown passkey")):
        with pytest.raises(Refusal, match=reason):
            await tracker.scrape(1, passkey=passkey)
    await tracker.store.users.edit(ALICE, {"enabled": False})
    for torrents in ((1,), ()):
        with pytest.raises(Refusal, match="your account is disabled"):
            await tracker.scrape(*torrents, passkey=ALICE)
    assert await tracker.counted() == (
        {"requests": 6, "scrapes": 1},
        {"unknown passkey": 1, "no passkey": 2, "user disabled": 2},
    )


async def test_full_scrapes_are_disabled_by_default(tracker: TrackerHarness) -> None:
    with pytest.raises(Refusal, match="full scrapes are disabled") as caught:
        await tracker.scrape()
    assert caught.value.retry_in == "never"


async def test_full_scrapes_are_cached_for_a_minute(make_tracker: MakeTracker, monkeypatch: pytest.MonkeyPatch) -> None:
    tracker, loop, ends = await make_tracker(torrents={"full_scrape": True}), asyncio.get_running_loop(), []
    later = loop.call_later

    def call_later(seconds: float, callback: Callable[..., None], *args: Any, **options: Any) -> asyncio.TimerHandle:
        if seconds == 60.0:
            ends.append(callback)
        return later(seconds, callback, *args, **options)

    monkeypatch.setattr(loop, "call_later", call_later)
    assert await tracker.scrape() == {}
    await tracker.announce(1)
    assert await tracker.scrape() == {}
    assert await tracker.scrape(1) == {info_hash(1): ScrapeFile(0, 1, 0, 1)}
    (end_of_minute,) = ends
    end_of_minute()
    assert await tracker.scrape() == {info_hash(1): ScrapeFile(0, 1, 0, 1)}


def test_rules_follow_the_settings() -> None:
    settings = Settings.model_validate(
        {
            "announce": {"interval_seconds": 100},
            "torrents": {
                "mode": "registered",
                "max_torrents": 5,
                "new_per_address_hour": 6,
                "new_per_network_hour": 7,
                "forget_after_seconds": 70,
            },
            "users": {
                "private": "optional",
                "peer_memory_seconds": 80,
                "hnr_min_bytes": 9,
                "hnr_threshold_seconds": 10,
            },
            "reaper": {"interval_seconds": 211.5},
            "dht": {"give_peers": True, "give_below": 12, "torrents": "all"},
        }
    )
    rules = swarm_rules(settings)
    assert (rules.accounts, rules.open, rules.peer_memory, rules.max_gap) == ("optional", False, 80, 400)
    assert (rules.hnr_min_bytes, rules.hnr_threshold, rules.grace, rules.forget_after) == (9, 10, 211, 70)
    assert (rules.max_torrents, rules.new_per_address_hour, rules.new_per_network_hour) == (5, 6, 7)
    assert rules.max_credit == rules.max_user_credit == 1_250_000_000
    assert (rules.give_below, rules.give_all) == (12, True)
    assert swarm_rules(Settings()).give_below == 0


@pytest.mark.parametrize(
    ("mapping", "setting", "warns"),
    [
        ("unit3d", "mapping", True),
        ("unit3d", "refusal", False),
        ("gazelle", "mapping", False),
        ("gazelle", "warning", True),
        ("/no/file", "mapping", False),
    ],
)
async def test_a_sites_mapping_says_how_downloads_beyond_the_slots_are_answered(
    make_tracker: MakeTracker, mapping: str, setting: str, warns: bool
) -> None:
    users = {"private": "required", "max_downloads": 1, "beyond_max_downloads": setting}
    tracker = await make_tracker(users=users, site={"database": "mysql://u:p@127.0.0.1/site", "mapping": mapping})
    for user_id, passkey in (("7", ALICE), ("8", BOB)):
        await tracker.store.users.add(user_id, passkey)
    await tracker.announce(2, "started", BOB, bytes_left=0, info_hash=info_hash(2))
    await tracker.announce(1, "started", ALICE)
    if warns:
        reply = await tracker.announce(1, "started", ALICE, info_hash=info_hash(2))
        assert (reply.warning, reply.seeders, reply.leechers, reply.peers) == (NO_SLOT, 1, 0, b"")
    else:
        refusal = await tracker.refused(1, "started", ALICE, info_hash=info_hash(2))
        assert "as many torrents as you may" in str(refusal)


def test_the_rules_of_peer_lists_come_from_the_settings() -> None:
    """Regular announces are credited whatever the shortest interval of credit is."""
    settings = Settings.model_validate(
        {
            "announce": {"interval_seconds": 100, "untold_ports": "22, 6881"},
            "users": {
                "own_peers": True,
                "min_credit_interval_seconds": 200,
                "peer_lists_at_once": 7,
                "peer_lists_per_minute": 8,
                "peer_lists_per_day": 9,
            },
        }
    )
    rules = swarm_rules(settings)
    assert (rules.own_peers, rules.min_credit_interval, rules.untold_ports) == (True, 100, (22, 6881))
    assert (rules.lists_at_once, rules.lists_per_minute, rules.lists_per_day) == (7, 8, 9)
    rules = swarm_rules(Settings())
    assert (rules.own_peers, rules.min_credit_interval, rules.untold_ports) == (False, 0, ())
    assert (rules.lists_at_once, rules.lists_per_minute, rules.lists_per_day) == (300, 60, 20_000)


@pytest.mark.parametrize(
    ("interval", "jitter", "reap", "grace"),
    [(1800, 0.1, 2700, 2700), (3600, 0.5, 2700, 5460), (86400, 0.0, 2700, 86460), (10, 0.1, 1, 71)],
)
def test_the_grace_after_an_outage_exceeds_the_max_interval(
    interval: int, jitter: float, reap: float, grace: int
) -> None:
    """A peer that got a long interval just before the outage must not time out while it obeys."""
    settings = Settings.model_validate(
        {"announce": {"interval_seconds": interval, "interval_jitter": jitter}, "reaper": {"interval_seconds": reap}}
    )
    rules = swarm_rules(settings)
    assert rules.grace == grace


@pytest.mark.parametrize(
    ("interval", "jitter", "reap", "min_interval", "max_interval"),
    [
        (1800, 0.1, 2700, 2201, 2400),  # the defaults: at most the reap interval less 5 minutes
        (1800, 0.1, 86_400, 3600, 3924),
        (300, 0.1, 2700, 600, 654),
        (3600, 0.0, 2700, 5100, 5100),  # the timeout of 1.5 intervals is longer than the reap interval
        (10, 0.1, 1, 10, 10),
    ],
)
def test_a_throttled_interval_ends_5_minutes_before_the_usual_timeout(
    interval: int, jitter: float, reap: float, min_interval: int, max_interval: int
) -> None:
    announce = AnnounceSettings(interval_seconds=interval, interval_jitter=jitter)
    usual, throttled = steps(announce, reap), throttled_steps(announce, reap)
    assert [step.timeout for step in throttled] == [step.timeout for step in usual]
    intervals = [step.interval for step in throttled]
    assert (intervals[0], intervals[-1]) == (min_interval, max_interval) and intervals == sorted(intervals)
    for step, before in zip(throttled, usual, strict=True):
        assert before.interval <= step.interval <= 2 * before.interval
        assert step.interval <= max(before.interval, step.timeout - 300)
        assert before.min_interval <= step.min_interval <= step.interval


# Counters


async def counts(tracker: TrackerHarness) -> dict[str, int]:
    """Every sliced counter that is not zero."""
    await tracker.store.counters.flush()
    names = await tracker.store.counters.names()
    series = {name: await tracker.store.counters.series(name, 60) for name in names}
    return {name: sum(count for _, count in slices) for name, slices in series.items() if slices}


async def test_announces_count_by_event_family_and_outcome(tracker: TrackerHarness) -> None:
    await tracker.announce(1, "started")
    await tracker.announce(1, "started")  # already in the swarm
    await tracker.announce(2, address="2600::2")
    await tracker.announce(2, "completed", address="2600::2", bytes_left=0)
    await tracker.announce(2, "paused", address="2600::2")
    await tracker.announce(1, "stopped")
    await tracker.scrape(1)
    expected = {"requests": 7, "announces": 6, "announces.v4": 3, "announces.v6": 3, "announces.started": 2}
    expected |= {"announces.completed": 1, "announces.stopped": 1, "joins": 2, "joins.v4": 1, "joins.v6": 1}
    assert await counts(tracker) == expected | {"scrapes": 1, "scrapes.v4": 1}


async def test_announces_over_udp_count_as_such_as_well(tracker: TrackerHarness) -> None:
    """Also in a batch with announces over HTTP."""
    http, udp = tracker.decisions, tracker.decisions.over(UDP)
    started = {"event": Event.STARTED, "port": 6881, "bytes_left": Digits(b"1000")}
    peers = [Announce(info_hash(1), peer_id(number), **started) for number in range(4)]  # type: ignore[arg-type]
    await asyncio.gather(
        http.announce(peers[0], None, at("11.0.0.1")),
        udp.announce(peers[1]._replace(own_family=True), None, at("11.0.0.2")),
        http.announce(peers[2], None, at("2600::3")),
        udp.announce(peers[3]._replace(own_family=True), None, at("2600::4")),
    )
    tracker.store.clock.now += 60
    moved = [peer._replace(event=Event.UPDATE, uploaded=Digits(b"%d" % 10**n)) for n, peer in enumerate(peers)]
    await asyncio.gather(
        http.announce(moved[0], None, at("11.0.0.1")),
        udp.announce(moved[1]._replace(own_family=True), None, at("11.0.0.2")),
        http.announce(moved[2], None, at("2600::3")),
        udp.announce(moved[3]._replace(own_family=True), None, at("2600::4")),
    )
    found = await counts(tracker)
    assert found["announces"] == 8 and found["announces.udp"] == 4
    assert found["announces.v4"] == found["announces.v6"] == 4
    assert found["announces.udp.v4"] == found["announces.udp.v6"] == 2
    assert found["joins.v4"] == found["joins.v6"] == 2
    assert found["joins.udp.v4"] == found["joins.udp.v6"] == 1
    assert {name: number for name, number in found.items() if name.startswith("bytes.")} == {
        "bytes.up": 1111,
        "bytes.up.v4": 11,
        "bytes.up.v6": 1100,
        "bytes.up.udp.v4": 10,
        "bytes.up.udp.v6": 1000,
    }
    _, batches = await tracker.store.counters.distribution("announce_batch", 60)
    assert batches is not None and batches.sum == 8


async def test_announces_over_websockets_count_as_such_as_well(tracker: TrackerHarness) -> None:
    sockets, browser = tracker.decisions.over(WEBSOCKET), at("11.0.0.1")
    for event, uploaded in ((Event.STARTED, b"0"), (Event.UPDATE, b"10")):
        fields = {"event": event, "port": 0, "bytes_left": Digits(b"1000"), "uploaded": Digits(uploaded)}
        announce = AnnounceOverSocket(info_hash(1), peer_id(1), **fields)  # type: ignore[arg-type]
        announce.endpoint = pack_socket(browser, SocketId(1, 1))
        await sockets.announce(announce, None, browser)
        tracker.store.clock.now += 60
    found = await counts(tracker)
    assert (found["announces"], found["announces.ws"], found["joins.ws.v4"]) == (2, 2, 1)
    moved = {name: number for name, number in found.items() if name.startswith("bytes.")}
    assert moved == {"bytes.up": 10, "bytes.up.v4": 10, "bytes.up.ws.v4": 10}


async def test_what_peers_move_counts_in_a_call_that_begins_with_a_closed_websocket(tracker: TrackerHarness) -> None:
    await tracker.announce(1)
    before = await counts(tracker)
    announce = AnnounceOverSocket(info_hash(1), peer_id(2), 0)
    announce.endpoint, closed = pack_socket(at("11.0.0.2"), SocketId(1, 1)), asyncio.Event()
    tracker.store.clock.now += 60
    tracker.decisions.over(WEBSOCKET).submit_gone(announce, None, at("11.0.0.2"), closed.set)
    await tracker.announce(1, uploaded=10)
    assert closed.is_set() and "bytes.up" not in before
    assert (await counts(tracker))["bytes.up"] == 10


async def test_an_answer_that_raises_leaves_the_others_of_its_call_answered(tracker: TrackerHarness) -> None:
    answered: list[Reply | Refusal] = []
    for number, answer in enumerate((raise_error, answered.append, raise_error, answered.append)):
        announce = Announce(info_hash(1), peer_id(number), 6881, bytes_left=Digits(b"1"))
        assert tracker.decisions.submit(announce, None, at(f"11.0.0.{number}"), answer)
    await tracker.announce(9)
    assert len(answered) == 2


def raise_error(reply: Reply | Refusal) -> None:
    raise ZeroDivisionError(reply)


async def test_settings_are_reloaded_for_both_protocols(make_tracker: MakeTracker) -> None:
    """The UDP front end has its own view of them."""
    tracker = await make_tracker(announce={"peers_max": 5})
    udp = tracker.decisions.over(UDP)
    live = tracker.decisions._live
    announce_settings = AnnounceSettings(interval_seconds=77, interval_jitter=0)
    live.current = live.current.model_copy(update={"announce": announce_settings})
    for decisions in (udp, tracker.decisions):
        announce = Announce(info_hash(1), peer_id(1), 6881)
        assert (await decisions.announce(announce, None, at("11.0.0.1"))).interval_seconds == 77


async def test_a_refusal_counts_only_as_a_failure(make_tracker: MakeTracker) -> None:
    tracker = await make_tracker(torrents={"mode": "registered"})
    await tracker.refused(1)
    assert await counts(tracker) == {"requests": 1, "failures.unknown torrent": 1, "refused.announces": 1}
    assert tracker.joined == []


async def test_each_join_is_reported_once_with_its_address(tracker: TrackerHarness) -> None:
    await tracker.announce(1, "started")
    await tracker.announce(1)
    await tracker.announce(2, "started", address="2600::2")
    await tracker.announce(1, "stopped")
    await tracker.announce(1)
    assert tracker.joined == [(info_hash(1), at(address)) for address in ("11.0.0.1", "2600::2", "11.0.0.1")]


async def test_client_software_is_reported_only_on_joins_and_refusals(make_tracker: MakeTracker) -> None:
    """Never on a regular announce: nearly every announce is one."""
    tracker = await make_tracker(torrents={"mode": "registered"})
    await tracker.refused(1)
    await tracker.store.torrents.add(info_hash(1))
    await tracker.announce(1, "started")
    assert tracker.clients_seen == [(peer_id(1), "unknown torrent"), (peer_id(1), "")]
    assert tracker.refused_torrents == [info_hash(1)]
    for event in ("", "", "started", "completed", "paused", "stopped"):
        await tracker.announce(1, event)
    await tracker.announce(1, "stopped")
    await tracker.scrape(1)
    assert len(tracker.clients_seen) == 2
    await tracker.announce(1)
    await tracker.store.torrents.deny(info_hash(1), "an operator's own reason")
    await tracker.refused(1)
    assert tracker.clients_seen[2:] == [(peer_id(1), ""), (peer_id(1), "denied")]


async def test_client_software_is_reported_while_the_store_is_unavailable(
    start_server: Callable[..., Server], prefix: str
) -> None:
    """The announce itself is refused."""
    server = start_server("--appendonly", "no")
    async with open_tracker(server.url, prefix, Settings()) as tracker:
        server.kill()
        await tracker.refused(1)
        assert tracker.clients_seen == [(peer_id(1), "store unavailable")]


async def test_announce_latency_is_measured(tracker: TrackerHarness) -> None:
    """C10: the timer of this test advances by one second at each call."""
    for _ in range(3):
        await tracker.announce(1)
    await tracker.store.counters.flush()
    _, measured = await tracker.store.counters.distribution("announce_seconds", 86400)
    assert measured is not None
    assert (measured.count, measured.mean, measured.deviation) == (3, 1.0, 0.0)


async def test_overload_refusals_spread_their_retry_times(make_tracker: MakeTracker) -> None:
    """Scrapes and announces share the bound on waiting requests."""
    tracker = await make_tracker()
    answers: list[ScrapeReply | Refusal] = []
    places, more = 2048, 40
    for _ in range(places + more):
        assert tracker.decisions.submit_scrape(Scrape((info_hash(1),)), None, at("11.0.0.1"), answers.append)
    assert len(answers) == more
    busy = [answer for answer in answers if isinstance(answer, Busy)]
    assert {answer.label for answer in busy} == {"busy"} and len(busy) == more
    assert len({answer.retry_in for answer in busy}) > 1 and {answer.retry_in for answer in busy} <= {*range(1, 6)}


async def test_a_start_is_told_which_multipliers_apply(make_tracker: MakeTracker) -> None:
    """T26."""
    tracker = await make_tracker(users={"private": "required"})
    store = tracker.store
    await store.users.add("7", ALICE)
    assert (await tracker.announce(1, "started", ALICE)).warning is None  # from a public address
    await store.multipliers.set("1", "0")
    assert (await tracker.announce(1, "", ALICE)).warning is None
    reply = await tracker.announce(2, "started", ALICE, "10.0.0.1")
    assert reply.warning == f"{FREELEECH}; {PRIVATE_ADDRESS}"
    await store.multipliers.set("2", "0.5")
    reply = await tracker.announce(3, "started", ALICE)
    assert reply.warning == "your download counts 0.5 times; your upload counts 2 times"
    await store.multipliers.set("0 neutral", "0")
    assert (await tracker.announce(4, "started", ALICE)).warning == NEUTRAL
    assert len(tracker.joined) == 4


async def test_a_reply_without_budget_names_no_interval_after_which_there_are_no_peers(
    make_tracker: MakeTracker,
) -> None:
    """T33. Sooner than the minimum credit interval no announce of a user is answered with peers."""
    users = {"private": "required", "peer_lists_at_once": 1, "min_credit_interval_seconds": 900}
    tracker = await make_tracker(users=users, announce={"interval_jitter": 0.0})
    await tracker.store.users.add("7", ALICE)
    await tracker.store.users.add("8", BOB)
    for torrent in (1, 2):
        await tracker.announce(9, "started", BOB, info_hash=info_hash(torrent))
        last = await tracker.announce(1, "started", ALICE, info_hash=info_hash(torrent))
    assert (last.peers, last.interval_seconds, last.min_interval_seconds) == (b"", 900, 900)
    tracker.store.clock.now += 900
    after = await tracker.announce(1, "", ALICE, info_hash=info_hash(2))
    assert (bool(after.peers), after.interval_seconds) == (True, 1800)


@pytest.mark.parametrize("own_family", [False, True])
async def test_a_reply_without_budget_has_no_peers_a_warning_and_five_minutes(
    make_tracker: MakeTracker, own_family: bool
) -> None:
    """T33, over HTTP and UDP. Whatever the interval is, the next one comes after 5 minutes and has peers."""
    tracker = await make_tracker(
        users={"private": "required", "peer_lists_at_once": 1}, announce={"interval_jitter": 0.0}
    )
    await tracker.store.users.add("7", ALICE)
    await tracker.store.users.add("8", BOB)
    for torrent in (1, 2):
        changes: dict[str, Any] = {"info_hash": info_hash(torrent), "own_family": own_family}
        await tracker.announce(9, "started", BOB, **changes)
        last = await tracker.announce(1, "started", ALICE, **changes)
        told = {"peers": bool(last.peers), "warning": last.warning, "seconds": last.interval_seconds}
        if torrent == 1:
            assert told == {"peers": True, "warning": None, "seconds": 1800}
    assert told == {"peers": False, "warning": NO_PEERS_NOW, "seconds": 300}
    assert (last.min_interval_seconds, last.leechers) == (300, 2)
    assert tracker.joined[-1][0] == info_hash(2)
    tracker.store.clock.now += 300
    after = await tracker.announce(1, "", ALICE, **changes)
    assert (bool(after.peers), after.warning, after.interval_seconds) == (True, None, 1800)
