"""CPU time of a regular announce on a public and on a private tracker: `python -m loadtest.bench.regular`; with a
commit, also on a public tracker of that commit.

All run as `tracker serve` with everything on and a store without an append-only file. They are measured in turns with
wrk, as loadtest.bench.run does. All announces are regular ones of peers that moved nothing, as nearly all announces of
a private tracker are. Each user has ten peers, in as many torrents.
"""

import argparse
import random
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import uvloop

from loadtest.bench import processes
from loadtest.bench.against import USERS, checkout
from loadtest.bench.loader import BenchError, send_all
from loadtest.bench.measure import Load, Measurements, check, measure
from loadtest.bench.population import announce_target, make_peers
from loadtest.bench.tables import table
from loadtest.bench.targets import MODES, Target, tracker
from tracker.store.schema.keys import Keys

CONNECTIONS, PER_USER = 64, 10
_PARTS = {"tracker": "server_us", "store": "store_us", "together": "total_us"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", nargs="?", help="also measure a public tracker of this git commit")
    parser.add_argument("--runs", type=int, default=5, help="timed runs of each, in turn; the median counts (5)")
    parser.add_argument("--seconds", type=int, default=4, help="length of a timed run (4)")
    parser.add_argument("--peers", type=int, default=50_000, help="active peers (50,000)")
    options = parser.parse_args()
    kinds: dict[str, Mapping[str, str]] = {"public": {}, "private": USERS}
    with tempfile.TemporaryDirectory(prefix="bench-") as name, ExitStack() as stack:
        if options.commit:
            root = stack.enter_context(checkout(options.commit, Path(name) / "before"))
            kinds[options.commit] = {"PYTHONPATH": str(root)}
        try:
            found = run(Path(name), kinds, options.runs, options.seconds, options.peers)
        except BenchError as error:
            sys.exit("\n".join([f"nothing to compare: {error}", *getattr(error, "__notes__", [])]))
    print(as_markdown(found))


def run(
    directory: Path, kinds: Mapping[str, Mapping[str, str]], runs: int, seconds: int, peers: int
) -> dict[str, dict[str, list[Measurements]]]:
    """What each run measured, by connection mode and kind of tracker. ``kinds``: their environment variables."""
    with ExitStack() as stack:
        targets = {
            kind: stack.enter_context(_started(directory / f"{n}", kind, kinds[kind], peers))
            for n, kind in enumerate(kinds)
        }
        found: dict[str, dict[str, list[Measurements]]] = {mode: {kind: [] for kind in kinds} for mode in MODES}
        for mode, by_kind in found.items():
            for turn in range(runs):
                for n, (kind, measured) in enumerate(by_kind.items()):
                    load = Load(directory / f"{n}" / "targets.txt", CONNECTIONS, seconds)
                    if turn == 0:
                        check(targets[kind], mode, load)
                    measured.append(measure(targets[kind], mode, load))
        return found


@contextmanager
def _started(directory: Path, kind: str, variables: Mapping[str, str], peers: int) -> Iterator[Target]:
    """A tracker whose peers have joined. Their regular announces are in targets.txt."""
    directory.mkdir()
    # Neighbours share a torrent, so by turns no user has two peers in one.
    present = sorted(make_peers(peers, peers // 20), key=lambda peer: peer.info_hash)
    users = peers // PER_USER
    clients = [(f"/{_passkey(n % users)}" if variables is USERS else "", peer) for n, peer in enumerate(present)]
    random.Random(1).shuffle(clients)
    targets = directory / "targets.txt"
    targets.write_text("\n".join(path + announce_target(peer) for path, peer in clients))
    with tracker(directory, peers // 20, name=kind, file=False, workers=1, more=variables) as target:
        if target.store is None:
            raise BenchError("the tracker has no store")
        with target.store.pipeline(transaction=False) as pipeline:
            for user in range(users):
                pipeline.hset(Keys("t:").passkey(_passkey(user)), "user_id", str(user + 1))
            if variables is USERS:
                pipeline.execute()
        joins = [path + announce_target(peer, "started", peers_wanted=1) for path, peer in clients]
        uvloop.run(send_all(target.port, joins))
        processes.place(target.pids, {processes.cores()[processes.SERVER_CORE]})
        yield target


def _passkey(user: int) -> str:
    return f"{user:040x}"


def as_markdown(found: Mapping[str, Mapping[str, list[Measurements]]]) -> str:
    rows = []
    for mode, by_kind in found.items():
        for part, name in _PARTS.items():
            costs = [statistics.median(each[name] for each in measured) for measured in by_kind.values()]
            rows.append((mode, part, *(f"{cost:.1f} ({cost / costs[0]:.2f})" for cost in costs)))
    return table(("CPU us of an announce", "", *found[MODES[0]]), rows)


if __name__ == "__main__":
    main()
