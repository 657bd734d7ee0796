"""The decisions, over a real store: what peers are told, who is refused and how that is counted (rows T1, T2, T18, T20, T25)."""

import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.desk import SECRET, Desk, MakeDesk, at, open_desk
from tests.servers import Server
from tests.store.harness import ALICE, START, info_hash, peer_id
from tracker.bittorrent import Scrape, ScrapeFile, ScrapeReply
from tracker.errors import Busy, ClientError
from tracker.rules import swarm_rules
from tracker.settings import Settings


@pytest.fixture
async def make_desk(any_server: Server, prefix: str) -> AsyncIterator[MakeDesk]:
    async with AsyncExitStack() as stack:

        async def make(secret: bytes = SECRET, **sections: dict[str, Any]) -> Desk:
            settings = Settings.model_validate(sections)
            return await stack.enter_async_context(open_desk(any_server.url, prefix, settings, secret))

        yield make


@pytest.fixture
async def desk(make_desk: MakeDesk) -> Desk:
    return await make_desk()


async def test_what_a_peer_is_told(desk: Desk) -> None:
    """T1: and BEP 24's address."""
    first = await desk.announce(1, "started")
    assert (first.seeders, first.leechers, first.completions) == (0, 1, 0)
    assert first.peers == first.peers6 == first.peer_ids == b"" and first.warning is None
    assert first.external_address == at("11.0.0.1")
    second = await desk.announce(2, "started", bytes_left=0)
    assert second.peers == at("11.0.0.1") + (6881).to_bytes(2, "big")
    assert (second.seeders, second.leechers, second.peer_ids) == (1, 1, b"")
    third = await desk.announce(3, "started", address="2600::3")
    assert third.external_address == at("2600::3") and len(third.peers) == 12
    assert (await desk.announce(1)).peers6 == at("2600::3") + (6881).to_bytes(2, "big")


@pytest.mark.parametrize(
    ("compact", "no_peer_id", "with_ids"), [(True, False, False), (False, True, False), (False, False, True)]
)
async def test_peer_ids_only_for_the_long_form(
    desk: Desk, compact: bool, no_peer_id: bool, with_ids: bool
) -> None:
    await desk.announce(1)
    reply = await desk.announce(2, compact=compact, no_peer_id=no_peer_id)
    assert reply.peer_ids == (peer_id(1) if with_ids else b"")


async def test_intervals_are_jittered_within_their_bounds(make_desk: MakeDesk) -> None:
    desk = await make_desk(
        announce={"interval_seconds": 1000, "interval_jitter": 0.2, "min_interval_seconds": 600}
    )
    replies = [await desk.announce(1) for _ in range(100)]
    intervals = {reply.interval_seconds for reply in replies}
    assert min(intervals) >= 1000 and max(intervals) < 1200
    assert len(intervals) > 5 and max(intervals) - min(intervals) > 100
    assert {reply.min_interval_seconds for reply in replies} == {600}


async def test_the_least_interval_is_never_above_the_interval(make_desk: MakeDesk) -> None:
    desk = await make_desk(
        announce={"interval_seconds": 300, "interval_jitter": 0, "min_interval_seconds": 900}
    )
    reply = await desk.announce(1)
    assert (reply.interval_seconds, reply.min_interval_seconds) == (300, 300)


@pytest.mark.parametrize(
    ("interval", "reap", "jitter"), [(1800, 60, 0.5), (1800, 2700, 0.0), (10, 2700, 0.5)]
)
async def test_the_timeout_follows_this_answers_interval(
    make_desk: MakeDesk, interval: int, reap: float, jitter: float
) -> None:
    """T5: 1.5 times the interval that was just told, at least the reap interval."""
    desk = await make_desk(
        announce={"interval_seconds": interval, "interval_jitter": jitter}, reaper={"interval_seconds": reap}
    )
    for _ in range(10):
        told = (await desk.announce(1)).interval_seconds
        left = await desk.store.redis.pttl(desk.store.keys.timeout(1, peer_id(1)))
        expected = max(1.5 * told, reap) * 1000
        assert expected - 1000 < left <= expected


@pytest.mark.parametrize(
    ("wanted", "default", "most", "given"),
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
async def test_how_many_peers(
    make_desk: MakeDesk, wanted: int | None, default: int, most: int, given: int
) -> None:
    """T25: 0 is honoured, too many are clamped, and neither is the default above the most."""
    desk = await make_desk(announce={"peers_default": default, "peers_max": most})
    for number in range(2, 15):
        await desk.announce(number, "started")
    reply = await desk.announce(1, "started", peers_wanted=wanted)
    assert len(reply.peers) == 6 * given


async def test_a_stopped_peer_gets_no_peers(desk: Desk) -> None:
    await desk.announce(2)
    await desk.announce(1)
    reply = await desk.announce(1, "stopped", port=0, peers_wanted=50)
    assert (reply.peers, reply.peers6, reply.leechers, reply.warning) == (b"", b"", 1, None)


async def test_private_addresses_are_warned_once_per_start(desk: Desk) -> None:
    for address in ("192.168.1.7", "fd00::7", "127.0.0.1"):
        number = int(at(address)[-1])
        warnings = [
            (await desk.announce(number, event, address=address)).warning is not None
            for event in ("started", "", "completed", "stopped", "started")
        ]
        assert warnings == [True, False, False, False, True]
        await desk.announce(number, "stopped", address=address)


async def test_private_addresses_can_be_refused(make_desk: MakeDesk) -> None:
    desk = await make_desk(announce={"private_addresses": "refuse"})
    error = await desk.refused(1, address="10.0.0.1")
    assert "your address is private" in error.text and error.retry_in == 60
    assert (await desk.announce(1)).leechers == 1
    figures, failures = await desk.counted()
    assert figures == {"requests": 2, "announces": 1} and list(failures.values()) == [1]


BOGONS = (
    *(
        "0.1.1.1",
        "10.1.1.1",
        "100.64.1.1",
        "127.1.1.1",
        "169.254.1.1",
        "172.16.1.1",
        "192.0.0.1",
        "192.0.2.1",
    ),
    *(
        "192.168.1.1",
        "198.18.1.1",
        "198.51.100.1",
        "203.0.113.1",
        "224.1.1.1",
        "240.1.1.1",
        "255.255.255.255",
    ),
    *("::", "::1", "::ffff:10.1.1.1", "::10.1.1.1", "64:ff9b::10.1.1.1", "100::1", "2001::1", "2001:db8::1"),
    *("2002:a01:101::1", "3fff::1", "fc00::1", "fe80::1", "ff02::1"),
)


async def test_no_bogon_gets_into_a_swarm_where_they_are_refused(make_desk: MakeDesk) -> None:
    """Whatever it announces: nothing is written but counts."""
    desk = await make_desk(announce={"private_addresses": "refuse"})
    before = await desk.store.dump()
    for number, address in enumerate(BOGONS):
        for event in ("started", "completed", "stopped", ""):
            await desk.refused(number, event, address=address, bytes_left=0)
    assert await desk.store.dump() == before


async def test_a_passkey_means_nothing_in_public_mode(desk: Desk) -> None:
    await desk.announce(1, passkey="whatever")
    assert "user_id" not in await desk.peer()
    assert (await desk.announce(1)).leechers == 1  # the same peer, without it


async def test_every_refusal_has_its_text_and_its_label(make_desk: MakeDesk) -> None:
    """T2: fixed texts, counted by label; an operator's own reason is shown, and never becomes a label."""
    desk = await make_desk(
        users={"private": True}, torrents={"mode": "registered"}, clients={"allow_list": True}
    )
    store = desk.store
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
    await store.clients.allow(b"-XX")
    cases: list[tuple[dict[str, Any], str, str, int | str]] = [
        (
            {"peer_id": b"-YY0001-" + bytes(12)},
            "your client is not allowed",
            "your client is not allowed on this tracker",
            60,
        ),
        ({"passkey": None}, "unknown passkey", "unknown passkey", 60),
        ({"passkey": "n" * 20}, "unknown passkey", "unknown passkey", 60),
        ({"passkey": "d" * 20}, "your account is disabled", "user disabled", 60),
        ({"passkey": "l" * 20}, "your account may not download", "may not leech", 60),
        ({"info_hash": info_hash(99)}, "this torrent is not registered", "unknown torrent", 30),
        ({"info_hash": info_hash(2)}, "this torrent is disabled", "disabled", 60),
        ({"info_hash": info_hash(3)}, "broken file: use v2", "disabled", 60),
        ({"info_hash": info_hash(4)}, "this torrent is not allowed", "denied", "never"),
        ({"info_hash": info_hash(5)}, "asked for by its author", "denied", "never"),
        ({"info_hash": info_hash(7)}, "this torrent is registered wrongly", "bad torrent id", 60),
    ]
    before = await store.dump()
    for changes, text, label, retry_in in cases:
        error = await desk.refused(1, "started", **{"passkey": ALICE, **changes})
        assert error.text.startswith(text) and (error.label, error.retry_in) == (label, retry_in)
    assert await store.dump() == before
    assert (await desk.announce(1, "started", passkey=ALICE)).leechers == 1
    figures, failures = await desk.counted()
    assert figures == {"requests": len(cases) + 1, "announces": 1}
    labels = [label for _, _, label, _ in cases]
    assert failures == {label: labels.count(label) for label in labels}


async def test_the_limits_of_open_mode_have_texts_too(make_desk: MakeDesk) -> None:
    desk = await make_desk(torrents={"max_torrents": 2, "new_per_address_hour": 1})
    await desk.announce(1, info_hash=info_hash(1))
    assert (await desk.refused(1, info_hash=info_hash(2))).label == "too many new torrents"
    await desk.announce(2, info_hash=info_hash(2))
    assert (await desk.refused(3, info_hash=info_hash(3))).label == "too many torrents"


async def test_what_nobody_foresaw_is_an_internal_error(desk: Desk) -> None:
    """Its cause is logged, not told."""
    await desk.store.redis.set(desk.store.keys.torrent(info_hash(1)), "somebody wrote a string here")
    error = await desk.refused(1)
    assert (error.text, error.label, error.retry_in) == ("internal error", "internal error", 5)


async def test_a_store_that_is_away_is_told_so(make_desk: MakeDesk) -> None:
    """Announces, scrapes and allow-list alike, and counted once it is back."""
    desk = await make_desk(users={"private": True}, clients={"allow_list": True})
    connection = desk.store.connection
    connection._lost(OSError())
    error = await desk.refused(1)
    assert (error.label, error.retry_in) == ("store away", 1) and "by itself" in error.text
    with pytest.raises(ClientError) as caught:
        await desk.scrape(1, passkey=ALICE)
    assert (caught.value.label, caught.value.retry_in) == ("store away", 1)
    assert await connection._returned()
    assert await desk.counted() == ({"requests": 2}, {"store away": 2})


async def test_refusals_elsewhere_are_counted(desk: Desk) -> None:
    desk.tracker.refused("no info_hash")
    assert await desk.counted() == ({"requests": 1}, {"no info_hash": 1})


async def test_the_allow_list_is_asked_only_when_switched_on(make_desk: MakeDesk) -> None:
    """T21: and a change holds by the process's own clock."""
    assert (await (await make_desk()).announce(1)).leechers == 1
    desk = await make_desk(clients={"allow_list": True})
    assert (await desk.refused(2)).text == "your client is not allowed on this tracker"
    await desk.store.clients.allow(b"-XX0001-")
    desk.store.clock.now += 5
    assert (await desk.announce(2)).leechers == 2


async def test_the_digest_of_a_key_depends_on_the_secret(make_desk: MakeDesk) -> None:
    """Who reads the store cannot find a client's key, nor tell by two trackers' stores that it is the same."""
    key = b"8 \xffbytes"
    first, second = await make_desk(), await make_desk(secret=b"another" * 5)
    await first.announce(1, key=key)
    await second.announce(2, key=key)
    await first.announce(3)
    stored = [(await first.peer(number)).get("key", b"") for number in (1, 2, 3)]
    assert stored[0] == hashlib.blake2b(key, digest_size=8, key=SECRET).digest()
    assert len(stored[1]) == 8 and stored[1] != stored[0] and stored[2] == b""
    moved = await first.announce(1, key=key, address="11.9.9.9")  # the key proves that it is the same peer
    assert moved.leechers == 3 and (await first.peer())["endpoints"][:4] == at("11.9.9.9")


async def test_figures_are_scraped(desk: Desk) -> None:
    """T18: zeros for what is not known; the least time between scrapes is told."""
    await desk.announce(1, bytes_left=0)
    await desk.announce(2)
    await desk.announce(3, "paused")
    assert await desk.scrape(1, 2) == {info_hash(1): ScrapeFile(1, 2, 0, 1), info_hash(2): ScrapeFile()}
    reply = await desk.tracker.scrape(Scrape((info_hash(1),)), None, at("11.0.0.1"))
    assert reply.min_request_interval_seconds == 900
    assert await desk.counted() == ({"requests": 5, "announces": 3, "scrapes": 2}, {})


async def test_private_scrapes_need_a_passkey(make_desk: MakeDesk) -> None:
    desk = await make_desk(users={"private": True})
    await desk.store.users.add("7", ALICE)
    assert await desk.scrape(1, passkey=ALICE) == {info_hash(1): ScrapeFile()}
    for passkey in (None, "", "n" * 20):
        with pytest.raises(ClientError, match="unknown passkey"):
            await desk.scrape(1, passkey=passkey)
    await desk.store.users.edit(ALICE, {"enabled": False})
    for torrents in ((1,), ()):
        with pytest.raises(ClientError, match="your account is disabled"):
            await desk.scrape(*torrents, passkey=ALICE)
    assert await desk.counted() == (
        {"requests": 6, "scrapes": 1},
        {"unknown passkey": 3, "user disabled": 2},
    )


async def test_full_scrapes_are_off_unless_switched_on(desk: Desk) -> None:
    with pytest.raises(ClientError, match="full scrapes are switched off") as caught:
        await desk.scrape()
    assert caught.value.retry_in == "never"


async def test_full_scrapes_are_remembered_for_a_minute(make_desk: MakeDesk) -> None:
    desk = await make_desk(torrents={"full_scrape": True})
    assert await desk.scrape() == {}
    await desk.announce(1)
    desk.store.clock.now = START + 59.9
    assert await desk.scrape() == {}
    assert await desk.scrape(1) == {info_hash(1): ScrapeFile(0, 1, 0, 1)}
    desk.store.clock.now = START + 60
    assert await desk.scrape() == {info_hash(1): ScrapeFile(0, 1, 0, 1)}
    desk.store.clock.now = START - 1000  # a clock that went back must not keep it for longer
    await desk.announce(2)
    assert (await desk.scrape())[info_hash(1)].leechers == 2


def test_rules_follow_the_settings() -> None:
    settings = Settings.model_validate(
        {
            "announce": {"interval_seconds": 100},
            "torrents": {
                "mode": "registered",
                "max_torrents": 5,
                "new_per_address_hour": 6,
                "forget_after_seconds": 70,
            },
            "users": {
                "private": True,
                "peer_memory_seconds": 80,
                "hnr_min_bytes": 9,
                "hnr_threshold_seconds": 10,
            },
            "reaper": {"interval_seconds": 211.5},
        }
    )
    rules = swarm_rules(
        settings.announce, settings.torrents, settings.users, settings.reaper, settings.limits
    )
    assert (rules.private, rules.open, rules.peer_memory, rules.longest_gap) == (True, False, 80, 400)
    assert (rules.hnr_min_bytes, rules.hnr_threshold, rules.grace, rules.forget_after) == (9, 10, 211, 70)
    assert (rules.max_torrents, rules.new_per_address_hour, rules.max_credit) == (5, 6, 134_217_728)


@pytest.mark.parametrize(
    ("interval", "jitter", "reap", "grace"),
    [(1800, 0.1, 2700, 2700), (3600, 0.5, 2700, 5460), (86400, 0.0, 2700, 86460), (10, 0.1, 1, 71)],
)
def test_the_grace_after_an_outage_outlasts_the_longest_interval(
    interval: int, jitter: float, reap: float, grace: int
) -> None:
    """A peer that was told a long interval just before the outage must not be reaped while it obeys."""
    settings = Settings.model_validate(
        {
            "announce": {"interval_seconds": interval, "interval_jitter": jitter},
            "reaper": {"interval_seconds": reap},
        }
    )
    rules = swarm_rules(
        settings.announce, settings.torrents, settings.users, settings.reaper, settings.limits
    )
    assert rules.grace == grace


# What announces are counted as


async def counts(desk: Desk) -> dict[str, int]:
    """Every sliced counter with a figure."""
    await desk.store.counters.flush()
    names = await desk.store.counters.names()
    series = {name: await desk.store.counters.series(name, 60) for name in names}
    return {name: sum(count for _, count in slices) for name, slices in series.items() if slices}


async def test_announces_count_by_event_family_and_outcome(desk: Desk) -> None:
    await desk.announce(1, "started")
    await desk.announce(1, "started")  # it is there already
    await desk.announce(2, address="2600::2")
    await desk.announce(2, "completed", address="2600::2", bytes_left=0)
    await desk.announce(2, "paused", address="2600::2")
    await desk.announce(1, "stopped")
    await desk.scrape(1)
    expected = {"requests": 7, "announces": 6, "announces.v4": 3, "announces.v6": 3, "announces.started": 2}
    expected |= {"announces.completed": 1, "announces.stopped": 1, "joins": 2, "joins.v4": 1, "joins.v6": 1}
    assert await counts(desk) == expected | {"scrapes": 1, "scrapes.v4": 1}


async def test_a_refusal_counts_as_a_failure_and_as_nothing_else(make_desk: MakeDesk) -> None:
    desk = await make_desk(torrents={"mode": "registered"})
    await desk.refused(1)
    assert await counts(desk) == {"requests": 1, "failures.unknown torrent": 1, "refused.announces": 1}
    assert desk.joined == []


async def test_each_join_is_told_once_and_with_its_address(desk: Desk) -> None:
    await desk.announce(1, "started")
    await desk.announce(1)
    await desk.announce(2, "started", address="2600::2")
    await desk.announce(1, "stopped")
    await desk.announce(1)
    assert desk.joined == [(info_hash(1), at(address)) for address in ("11.0.0.1", "2600::2", "11.0.0.1")]


async def test_programs_are_told_of_when_they_join_or_are_refused(make_desk: MakeDesk) -> None:
    """And never for a plain update, which is what nearly every announce is."""
    desk = await make_desk(torrents={"mode": "registered"})
    await desk.refused(1)
    await desk.store.torrents.add(info_hash(1))
    await desk.announce(1, "started")
    assert desk.heard == [(peer_id(1), "unknown torrent"), (peer_id(1), "")]
    for event in ("", "", "started", "completed", "paused", "stopped"):
        await desk.announce(1, event)
    await desk.announce(1, "stopped")
    await desk.scrape(1)
    assert len(desk.heard) == 2
    await desk.announce(1)
    await desk.store.torrents.deny(info_hash(1), "words of an operator's own")
    await desk.refused(1)
    assert desk.heard[2:] == [(peer_id(1), ""), (peer_id(1), "denied")]


async def test_programs_that_come_while_the_store_is_away_are_told_of(
    start_server: Callable[..., Server], prefix: str
) -> None:
    """Though nothing can be decided."""
    server = start_server("--appendonly", "no")
    async with open_desk(server.url, prefix, Settings()) as desk:
        server.kill()
        await desk.refused(1)
        assert desk.heard == [(peer_id(1), "store away")]


async def test_how_long_an_announce_takes_is_measured(desk: Desk) -> None:
    """C10: the timer of this test gives one second more each time it is asked."""
    for _ in range(3):
        await desk.announce(1)
    await desk.store.counters.flush()
    _, measured = await desk.store.counters.distribution("announce_seconds", 86400)
    assert measured is not None
    assert (measured.count, measured.mean, measured.deviation) == (3, 1.0, 0.0)


async def test_those_for_whom_there_is_no_place_are_told_to_come_back_each_in_its_time(
    make_desk: MakeDesk,
) -> None:
    """A flood of scrapes is as good as one of announces."""
    desk = await make_desk()
    answers: list[ScrapeReply | ClientError] = []
    places, more = 2048, 40
    for _ in range(places + more):
        assert desk.tracker.submit_scrape(Scrape((info_hash(1),)), None, at("11.0.0.1"), answers.append)
    assert len(answers) == more
    busy = [answer for answer in answers if isinstance(answer, Busy)]
    assert {answer.label for answer in busy} == {"busy"} and len(busy) == more
    assert len({answer.retry_in for answer in busy}) > 1 and {answer.retry_in for answer in busy} <= {
        *range(1, 6)
    }
