"""The fastest experiments, and that an experiment detects damage."""

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pytest
from bencodepy import encode as bencode

from loadtest.bench.sections import Section
from loadtest.chaos.__main__ import status
from loadtest.chaos.environment import Environment
from loadtest.chaos.experiment import EXPERIMENTS, Experiment, Outcome, run
from loadtest.chaos.inspection import Findings
from loadtest.chaos.registry import EXPERIMENTS as ALL
from loadtest.chaos.report import as_markdown
from loadtest.chaos.soak import check_trends, slope
from loadtest.clients.load import Load, Pace, info_hash_of
from loadtest.clients.raw_http import Connection
from loadtest.servers import ROOT
from loadtest.trackers import PATIENCE

PACE = Pace(peers=60, torrents=4)
QUICK = ("worker-killed", "connections-killed", "scripts-flushed")


async def run_all(experiments: list[Experiment], directory: Path) -> list[Outcome]:
    """Concurrently, because they mostly wait."""
    for experiment in experiments:
        (directory / experiment.name).mkdir()
    return await asyncio.gather(
        *(run(experiment, directory / experiment.name, PACE, **PATIENCE) for experiment in experiments)
    )


async def damage(environment: Environment, load: Load) -> None:
    """Removes joins from the change feed, and adds a peer that never announced."""
    with environment.store() as store:
        store.delete("t:changes")
        store.sadd(f"t:tpeers:{info_hash_of(load.seed, 0).hex()}", "00" * 20)


@pytest.mark.long
@pytest.mark.timeout(240)
async def test_quick_experiments_pass_and_damage_is_detected(tmp_path: Path) -> None:
    """T10 and T19, with clients that announce meanwhile."""
    damaged = replace(EXPERIMENTS["scripts-flushed"], name="damaged", fault=damage, settles_seconds=3.0)
    *quick, wrong = await run_all([*(ALL[name] for name in QUICK), damaged], tmp_path)
    assert {one.experiment.name: one.findings.complaints for one in quick} == {name: [] for name in QUICK}
    assert all(one.findings.peers == PACE.peers for one in quick)
    complaints = "\n".join(wrong.findings.complaints)
    assert "answered announces are lost" in complaints
    assert wrong.findings.lost >= PACE.peers
    assert re.search(r"after 3 s \d+ departed peers are listed", complaints)


@pytest.mark.long
@pytest.mark.timeout(120)
async def test_a_store_that_stays_down_fails_only_its_own_experiment(tmp_path: Path) -> None:
    def prepare(environment: Environment) -> None:
        environment.start_server("--appendonly", "no")
        environment.add_tracker()

    async def fault(environment: Environment, _: Load) -> None:
        assert environment.server is not None
        environment.server.kill()
        with environment.store() as store:
            store.ping()

    experiment = replace(EXPERIMENTS["store-restarted"], prepare=prepare, fault=fault)
    found = await run(experiment, tmp_path, replace(PACE, peers=0))
    assert not found.passed
    assert re.search("ConnectionError", found.findings.complaints[0])


def test_every_experiment_has_a_description() -> None:
    assert all(re.fullmatch(r"[a-z-]+", name) and len(experiment.description) > 20 for name, experiment in ALL.items())
    assert "| passed |" in as_markdown([Outcome(ALL["worker-killed"])])


def test_a_skipped_experiment_has_not_passed() -> None:
    """The table names the reason, and the exit status is 2."""
    experiment = ALL["worker-killed"]
    passed, failed = Outcome(experiment), Outcome(experiment, Findings(complaints=["lost"]))
    skipped = Outcome(experiment, skipped="it takes root")
    assert not skipped.passed and "| skipped: it takes root |" in as_markdown([skipped])
    assert [status(outcomes) for outcomes in ([passed], [passed, failed], [passed, skipped], [failed, skipped])] == [
        0,
        1,
        2,
        1,
    ]


def test_the_page_lists_exactly_the_experiments() -> None:
    page = (ROOT / "docs" / "trust.md").read_text(encoding="utf-8")
    _, _, block = page.partition("<!-- experiments: begin -->")
    table = block.partition("<!-- experiments: end -->")[0]
    assert set(re.findall(r"^\| ([a-z][a-z-]*) \|", table, re.MULTILINE)) - {"experiment"} == set(ALL)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (bencode({b"interval": 5, b"peers": b""}), "answered"),
        (bencode({b"failure reason": b"later", b"retry in": 5}), "refused"),
        (bencode({b"failure reason": b"later"}), "invalid"),
        (b"<html>", "invalid"),
        (b"le", "invalid"),
        (None, "closed"),
    ],
)
async def test_answers_are_classified(answer: bytes | None, kind: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if answer is not None:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(answer), answer))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        connection = Connection("127.0.0.1", keep=False)
        assert (await connection.get(port, "/announce")).kind == kind
    assert (await connection.get(port, "/announce")).kind == "unreachable"


def test_growth_is_reported_per_hour() -> None:
    assert slope([(0, 1.0), (1, 3.0), (2, 5.0)]) == pytest.approx(2.0)
    section = Section("")
    check_trends([(60.0 * minute, {"asyncio tasks": 65.0, "log": 2.0 * minute}) for minute in range(30)], section)
    assert [finding.reached for finding in section.findings] == [True, False]
