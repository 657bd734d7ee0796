"""`tracker work seed` as a process with libtorrent inside: it is stopped, and killed at every call."""

import asyncio
import contextlib
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

pytest.importorskip("libtorrent", reason="libtorrent has no wheel for this interpreter or system")

from loadtest.trackers import environment
from tests.volunteer.work_server import PASSKEY, WorkServer, work_server
from tests.waiting import eventually
from tracker.volunteer.clients.internal import Internal
from tracker.volunteer.loop import read_state

Process = asyncio.subprocess.Process
pytestmark = pytest.mark.slow
SIZE = 50_000


def command_line(server: WorkServer, home: Path) -> list[str]:
    home.mkdir(exist_ok=True)
    arguments = ["--url", server.url, "--client", f"internal:{home}/data?listen_interfaces=127.0.0.1:0"]
    arguments += ["--space", str(10 * SIZE), "--state", f"{home}/state.json"]
    assert PASSKEY not in " ".join(arguments)
    return [sys.executable, "-m", "tracker", "work", "seed", *arguments]


@contextlib.asynccontextmanager
async def seeding(server: WorkServer, home: Path, *more: str) -> AsyncIterator[Process]:
    command = command_line(server, home)
    with (home / "log").open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            *more,
            env=environment({"SWARMKEEPER_PASSKEY": PASSKEY}),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def torrents(home: Path) -> list[str]:
    client = Internal(home / "data", settings={"listen_interfaces": "127.0.0.1:0"})
    try:
        return sorted(each.info_hash for each in client.torrents({}))
    finally:
        client.close()


def check_log(home: Path) -> str:
    text = (home / "log").read_text()
    assert PASSKEY not in text and "Traceback" not in text, text
    return text


async def test_it_runs_until_it_is_stopped_and_shows_no_passkey(tmp_path: Path) -> None:
    async with work_server() as server:
        share = server.share(tmp_path / "source", SIZE)
        async with seeding(server, tmp_path / "home", "--every", "1") as process:
            await eventually(lambda: len(server.names("mine")) >= 2)
            process.terminate()
            assert await process.wait() == 0
        assert list(server.claims) == [share.info_hash.hex()] == torrents(tmp_path / "home")
    text = check_log(tmp_path / "home")
    assert re.search("claimed", text) and re.search("added", text)


MOMENTS = [(path, moment) for path in ("mine", "request", "torrent") for moment in ("before", "after")][:-1]


@pytest.mark.parametrize("number", [1, pytest.param(2, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("path", "moment"),
    [pytest.param(*each, marks=() if each == ("request", "after") else pytest.mark.long) for each in MOMENTS],
)
async def test_killed_at_a_call_it_goes_on_and_loses_nothing(
    tmp_path: Path, path: str, moment: str, number: int
) -> None:
    """W27: kill -9 before or after the tracker carried out the first or second call of this path."""
    home = tmp_path / "home"
    async with work_server() as server:
        for each in range(2):
            server.share(tmp_path / f"source{each}", SIZE)
        counted = 0
        async with seeding(server, home, "--every", "1") as process:

            def kill(called: str, at: str) -> None:
                nonlocal counted
                if (called, at) == (path, moment):
                    counted += 1
                    if counted == number:
                        process.kill()

            server.hook = kill
            await asyncio.wait_for(process.wait(), 60)
        server.hook = lambda called, at: None
        for _ in range(2):
            async with seeding(server, home, "--once") as process:
                assert await process.wait() == 0, check_log(home)
        assert sorted(server.claims) == sorted(server.torrents) == torrents(home)
    state = read_state(home / "state.json")
    assert {item.stage for item in state.items.values()} == {"added"} and state.asking is None
    check_log(home)
