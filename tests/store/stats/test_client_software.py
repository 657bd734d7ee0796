"""Client software: what is counted, how much of it is kept, and for how long."""

from datetime import UTC, datetime
from typing import Any

import pytest
from redis.exceptions import OutOfMemoryError
from structlog.testing import capture_logs

from tests.store.harness import START, Store, count_software, running
from tracker.store.schema.keys import Keys
from tracker.store.stats import client_software
from tracker.store.stats.client_software import MAX_BATCH, ClientSoftware, by_program, parted, program_of, shown
from tracker.store.stats.slices import month_of, month_start
from tracker.store.swarms.rules import SwarmRules

QB, TR = "qBittorrent 5.0.2", "Transmission 4.0.6"
LATER = month_start(START, 1).timestamp()


async def test_joins_and_failures_are_ranked_by_month_and_of_all_time(store: Store) -> None:
    await count_software(store.client_software, 1, {(QB, ""): 3, (TR, ""): 5, (QB, "unknown torrent"): 2}, START)
    await count_software(store.client_software, 2, {(QB, ""): 4, (QB, "denied"): 1}, LATER)
    this, later = month_of(START), month_of(LATER)
    assert await store.client_software.top("joins") == [(QB, 7), (TR, 5)]
    assert await store.client_software.top("joins", this) == [(TR, 5), (QB, 3)]
    assert await store.client_software.top("joins", later) == [(QB, 4)]
    assert await store.client_software.top("failures") == [(f"{QB}: unknown torrent", 2), (f"{QB}: denied", 1)]
    assert await store.client_software.top("failures", later) == [(f"{QB}: denied", 1)]
    assert await store.client_software.top("joins", count=1, offset=1) == [(TR, 5)]
    assert (await store.client_software.size("joins"), await store.client_software.size("joins", later)) == (2, 1)
    assert await store.client_software.top("joins", "2020-01") == []


async def test_months_live_13_months_beyond_their_end(store: Store) -> None:
    for number, now in enumerate((START, START + 86_400), 1):
        await count_software(store.client_software, number, {(QB, ""): 1, (QB, "denied"): 1}, now)
    until = int(month_start(START, 14).timestamp())
    assert datetime.fromtimestamp(until, UTC).day == 1
    for kind in ("joins", "failures"):
        assert await store.redis.expiretime(store.keys.client_software(kind, month_of(START))) == until
        assert await store.redis.ttl(store.keys.client_software(kind, "all")) == -1


async def test_a_batch_that_is_sent_again_counts_once(store: Store) -> None:
    """Only the last batch of a sender is recognised; senders keep their batches in order."""
    for number in (1, 1, 2, 2):
        await count_software(store.client_software, number, {(QB, ""): 1}, START)
    other = ClientSoftware(store.shards.main)
    await count_software(other, 1, {(QB, ""): 1}, START)
    assert await store.client_software.top("joins") == [(QB, 3)]


async def test_more_than_a_batch_is_refused(store: Store) -> None:
    with pytest.raises(ValueError, match="at most"):
        await count_software(store.client_software, 1, {(f"x{n}", ""): 1 for n in range(MAX_BATCH + 1)}, START)


async def test_invented_names_do_not_push_out_the_frequent(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A leaderboard that has grown too long is cut back to the names with the highest counts."""
    monkeypatch.setattr(client_software, "KEPT_MEMBERS", 10)
    monkeypatch.setattr(client_software, "MAX_MEMBERS", 15)
    await count_software(store.client_software, 1, {(QB, ""): 5, (TR, ""): 4, (QB, "denied"): 5}, START)
    for number in range(2, 50):
        invented = {(f"x{number}.{n}", label): 1 for n in range(4) for label in ("", "unknown torrent")}
        await count_software(store.client_software, number, invented, START)
        for kind in ("joins", "failures"):
            for period in ("all", month_of(START)):
                assert await store.client_software.size(kind, period) <= 15
    assert (await store.client_software.top("joins"))[:2] == [(QB, 5), (TR, 4)]
    assert (await store.client_software.top("failures", month_of(START)))[0] == (f"{QB}: denied", 5)


async def test_a_name_that_becomes_frequent_gets_onto_a_full_leaderboard(store: Store) -> None:
    """A leaderboard has spare room, so that a new name is not cut at once."""
    for number in range(10):
        await count_software(
            store.client_software, number, {(f"x{number}.{n}", ""): 2 for n in range(MAX_BATCH)}, START
        )
    assert await store.client_software.size("joins") == 1000 == client_software.KEPT_MEMBERS
    for number in range(10, 16):
        await count_software(store.client_software, number, {(QB, ""): 1}, START)
    assert (await store.client_software.top("joins"))[0] == (QB, 6)


async def test_a_leaderboard_of_another_type_affects_no_other(store: Store) -> None:
    await store.redis.set(store.keys.client_software("joins", "all"), "x")
    with capture_logs() as logs:
        await count_software(store.client_software, 1, {(QB, ""): 1, (QB, "denied"): 1}, START)
    assert [(line["log_level"], line["keys"]) for line in logs] == [("error", 1)]
    assert await store.client_software.top("joins", month_of(START)) == [(QB, 1)]
    assert await store.client_software.top("failures") == [(f"{QB}: denied", 1)]


async def test_a_full_store_counts_nothing_and_reports_it(start_server: Any, prefix: str) -> None:

    server = start_server("--appendonly", "no")
    async with running(Store(server.url, Keys(prefix), SwarmRules())) as store:
        await store.redis.config_set("maxmemory", 1)
        with pytest.raises(OutOfMemoryError):
            await count_software(store.client_software, 1, {(QB, ""): 1}, START)
        await store.redis.config_set("maxmemory", 0)
        await count_software(store.client_software, 1, {(QB, ""): 1}, START)
        assert await store.client_software.top("joins") == [(QB, 1)]


@pytest.mark.parametrize("name", [QB, "-AB:", "x"])
async def test_a_failure_is_separate_from_its_client_software(store: Store, name: str) -> None:
    await count_software(store.client_software, 1, {(name, "not: here"): 1}, START)
    ((member, times),) = await store.client_software.top("failures")
    assert (parted(member), times) == ((name, "not: here"), 1)


@pytest.mark.parametrize(
    ("name", "label", "stored"),
    [
        (QB, "", (QB, "")),
        (QB, "unknown torrent", (QB, "unknown torrent")),
        ("", "", ("unknown", "")),
        ("x" * 99, "y" * 99, ("x" * 40, "y" * 80)),
        ("\x1b]0;x\x07", "a\nb\u202e", ("?]0;x?", "a b?")),
        ("<b>\ud800", " ", ("<b>?", "")),
    ],
)
def test_names_are_short_and_printable(name: str, label: str, stored: tuple[str, str]) -> None:
    assert shown(name, label) == stored


@pytest.mark.parametrize(
    ("member", "program"),
    [
        ("qBittorrent 5.0.2", "qBittorrent"),
        ("qBittorrent 5.0.2: unknown torrent", "qBittorrent"),
        ("UPnP NAT 1b", "UPnP NAT"),
        ("libTorrent (Rakshasa) 0.13.8", "libTorrent (Rakshasa)"),
        ("aria2", "aria2"),
        ("-XX", "-XX"),
        ("7", "7"),
        ("", ""),
    ],
)
def test_a_program_is_a_client_without_its_version(member: str, program: str) -> None:
    assert program_of(member) == program


def test_versions_of_a_program_add_up() -> None:
    board = [("a 2", 5), ("b 1", 4), ("b 2", 3), ("c", 5)]
    assert by_program(board) == [("b", 7), ("a", 5), ("c", 5)]
