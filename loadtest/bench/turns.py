"""CPU time of an announce on a public and on a private tracker: `python -m loadtest.bench.turns`; with a commit, also
on a public tracker of that commit.

All run as `tracker serve` with everything on and a store without an append-only file. They are measured in turns with
wrk, as loadtest.bench.run does, and with its announces. With ``--regular`` all are regular ones of peers that moved
nothing, as nearly all announces of a private tracker are. Each user has ten peers, in as many torrents.
"""

import argparse
import re
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import uvloop

from loadtest.bench import processes
from loadtest.bench.against import USERS, checkout
from loadtest.bench.loader import BenchError, send_all
from loadtest.bench.measure import Load, Measurements, check, measure
from loadtest.bench.population import Workload, announce_target, make_workload
from loadtest.bench.tables import table
from loadtest.bench.targets import MODES, Target, tracker
from tracker.store.schema.keys import Keys

CONNECTIONS, PER_TORRENT, PER_USER = 64, 20, 10
_PARTS = {"tracker": "server_us", "store": "store_us", "together": "total_us"}
_PEER = re.compile("info_hash=([^&]+)(?:&peer_id=([^&]+))?")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", nargs="?", help="also measure a public tracker of this git commit")
    parser.add_argument("--runs", type=int, default=10, help="timed runs of each, in turns; the median counts (10)")
    parser.add_argument("--seconds", type=int, default=2, help="length of a timed run (2)")
    parser.add_argument("--peers", type=int, default=50_000, help="active peers (50,000)")
    parser.add_argument("--regular", action="store_true", help="only regular announces")
    options = parser.parse_args()
    kinds: dict[str, Mapping[str, str]] = {"public": {}, "private": USERS}
    workload = make_workload(options.peers, options.peers // PER_TORRENT, options.peers)
    if options.regular:
        workload.targets[:] = [target for target in workload.targets if _is_regular(target)]
    with tempfile.TemporaryDirectory(prefix="bench-") as name, ExitStack() as stack:
        if options.commit:
            root = stack.enter_context(checkout(options.commit, Path(name) / "before"))
            kinds[options.commit] = {"PYTHONPATH": str(root)}
        try:
            found = run(Path(name), kinds, workload, options.runs, options.seconds)
        except BenchError as error:
            sys.exit("\n".join([f"nothing to compare: {error}", *getattr(error, "__notes__", [])]))
    print(as_markdown(found))


def _is_regular(target: str) -> bool:
    return target.startswith("/announce") and "&event=" not in target


def run(
    directory: Path, kinds: Mapping[str, Mapping[str, str]], workload: Workload, runs: int, seconds: int
) -> dict[str, dict[str, list[Measurements]]]:
    """What each run measured, by connection mode and kind of tracker. ``kinds``: their environment variables."""
    with ExitStack() as stack:
        targets = {
            kind: stack.enter_context(_started(directory / f"{n}", kind, variables, workload))
            for n, (kind, variables) in enumerate(kinds.items())
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
def _started(directory: Path, kind: str, variables: Mapping[str, str], workload: Workload) -> Iterator[Target]:
    """A tracker whose peers have joined. What wrk sends it is in targets.txt."""
    directory.mkdir()
    joins = [announce_target(peer, "started", peers_wanted=1) for peer in workload.present]
    targets, passkeys = workload.targets, set[str]()
    if variables is USERS:
        found = _passkeys([*joins, *targets])
        joins, targets = ([f"/{found[_peer(target)]}{target}" for target in each] for each in (joins, targets))
        passkeys.update(found.values())
    (directory / "targets.txt").write_text("\n".join(targets))
    torrents = len(workload.present) // PER_TORRENT
    with tracker(directory, torrents, name=kind, file=False, workers=1, more=variables) as target:
        for user_id, passkey in enumerate(sorted(passkeys), 1):
            assert target.store is not None
            target.store.hset(Keys("t:").passkey(passkey), "user_id", str(user_id))
        uvloop.run(send_all(target.port, joins))
        processes.place(target.pids, {processes.cores()[processes.SERVER_CORE]})
        yield target


def _peer(target: str) -> tuple[str, str]:
    """The info hash and the peer id of an announce; of a scrape, an empty peer id."""
    found = _PEER.search(target)
    if found is None:
        raise BenchError(f"no announce: {target}")
    return found[1], found[2] or ""


def _passkeys(targets: Sequence[str]) -> dict[tuple[str, str], str]:
    """By peer. Neighbours in the order of torrents have different users, so no user has two peers in a torrent."""
    peers = sorted({_peer(target) for target in targets})
    return {peer: f"{n % (len(peers) // PER_USER):040x}" for n, peer in enumerate(peers)}


def as_markdown(found: Mapping[str, Mapping[str, list[Measurements]]]) -> str:
    """Medians, and beside each how many times that of the first kind it is: the median of the turns."""
    rows = []
    for mode, by_kind in found.items():
        first, *_ = by_kind.values()
        for part, figure in _PARTS.items():
            cells = []
            for measured in by_kind.values():
                times = statistics.median(
                    own[figure] / other[figure] for own, other in zip(measured, first, strict=True)
                )
                cells.append(f"{statistics.median(each[figure] for each in measured):.1f} ({times:.2f})")
            rows.append((mode, part, *cells))
    return table(("CPU µs of an announce", "", *found[MODES[0]]), rows)


if __name__ == "__main__":
    main()
