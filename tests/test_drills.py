"""The quick ones of the drills; and that a drill fails when something is wrong."""

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pytest
from bencodepy import encode as bencode

from bench.sections import Section
from drills.__main__ import status
from drills.drill import DRILLS, Drill, Held, hold
from drills.faults import DRILLS as ALL
from drills.fleet import Fleet, Pace, info_hash_of
from drills.inspection import Findings
from drills.report import as_markdown
from drills.scene import Scene
from drills.soak import judge, slope
from drills.talk import Line
from tests.servers import ROOT
from tests.trackers import PATIENCE

PACE = Pace(peers=60, torrents=4)
QUICK = ("worker-killed", "connections-killed", "scripts-flushed")


async def held(drills: list[Drill], directory: Path) -> list[Held]:
    """All at once: most of their time is waiting."""
    for drill in drills:
        (directory / drill.name).mkdir()
    return await asyncio.gather(*(hold(drill, directory / drill.name, PACE, **PATIENCE) for drill in drills))


async def damage(scene: Scene, fleet: Fleet) -> None:
    """Announces are lost, and somebody is there who never announced."""
    with scene.store() as store:
        torrent = b"t:t:" + info_hash_of(fleet.seed, 0).hex().encode()
        store.hincrby(torrent, "announces", -1000)
        store.delete(f"t:t:{fleet.ledger[0].hex()}")
        store.sadd(torrent.replace(b"t:t:", b"t:tpeers:"), "00" * 20)


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_the_quick_drills_pass_and_damage_is_noticed(tmp_path: Path) -> None:
    """T10 and T19, with clients that announce meanwhile."""
    damaged = replace(DRILLS["scripts-flushed"], name="damaged", fault=damage, settles_seconds=3.0)
    *quick, wrong = await held([*(ALL[name] for name in QUICK), damaged], tmp_path)
    assert {one.drill.name: one.findings.complaints for one in quick} == {name: [] for name in QUICK}
    assert all(one.findings.peers == PACE.peers for one in quick)
    complaints = "\n".join(wrong.findings.complaints)
    assert "announces that were answered are lost" in complaints
    assert wrong.findings.lost > 1000, "the one of the ledger too"
    assert re.search(r"after 3 s \d+ peers are there that went", complaints)


@pytest.mark.timeout(120)
@pytest.mark.slow
async def test_a_store_that_does_not_come_back_ends_its_own_drill_only(tmp_path: Path) -> None:
    def prepare(scene: Scene) -> None:
        scene.start_server("--appendonly", "no")
        scene.add_tracker()

    async def fault(scene: Scene, _: Fleet) -> None:
        assert scene.server is not None
        scene.server.kill()
        with scene.store() as store:
            store.ping()

    drill = replace(DRILLS["store-restarted"], prepare=prepare, fault=fault)
    found = await hold(drill, tmp_path, replace(PACE, peers=0))
    assert not found.passed
    assert re.search("ConnectionError", found.findings.complaints[0])


def test_every_drill_says_what_is_done() -> None:
    assert all(re.fullmatch(r"[a-z-]+", name) and len(drill.what) > 20 for name, drill in ALL.items())
    assert "| passed |" in as_markdown([Held(ALL["worker-killed"])])


def test_what_could_not_be_held_has_not_passed() -> None:
    """It is named with its reason, and a run that failed nothing says so by its status."""
    drill = ALL["worker-killed"]
    passed, failed = Held(drill), Held(drill, Findings(complaints=["lost"]))
    skipped = Held(drill, skipped="it takes root")
    assert not skipped.passed and "| not held: it takes root |" in as_markdown([skipped])
    assert [status(held) for held in ([passed], [passed, failed], [passed, skipped], [failed, skipped])] == [
        0,
        1,
        2,
        1,
    ]


def test_the_page_tells_of_drills_that_there_are() -> None:
    page = (ROOT / "docs" / "trust.md").read_text(encoding="utf-8")
    _, _, block = page.partition("<!-- drills: begin -->")
    table = block.partition("<!-- drills: end -->")[0]
    assert set(re.findall(r"^\| ([a-z][a-z-]*) \|", table, re.MULTILINE)) - {"drill"} == set(ALL)


@pytest.mark.parametrize(
    ("answer", "how"),
    [
        (bencode({b"interval": 5, b"peers": b""}), "answered"),
        (bencode({b"failure reason": b"later", b"retry in": 5}), "refused"),
        (bencode({b"failure reason": b"later"}), "odd"),
        (b"<html>", "odd"),
        (b"le", "odd"),
        (None, "closed"),
    ],
)
async def test_what_clients_are_answered(answer: bytes | None, how: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if answer is not None:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(answer), answer))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        line = Line("127.0.0.1", keep=False)
        assert (await line.ask(port, "/announce")).how == how
    assert (await line.ask(port, "/announce")).how == "unreachable"


def test_what_grows_is_told_by_the_hour() -> None:
    assert slope([(0, 1.0), (1, 3.0), (2, 5.0)]) == pytest.approx(2.0)
    section = Section("")
    judge([(60.0 * minute, {"asyncio tasks": 65.0, "log": 2.0 * minute}) for minute in range(30)], section)
    assert [finding.reached for finding in section.findings] == [True, False]
