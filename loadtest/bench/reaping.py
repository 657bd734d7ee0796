"""The reaping experiment: a few silent peers time out among many live ones.

A store finds expired keys by sampling, and is slow when few are due. So the experiment has live peers with long
timeouts, a million foreign keys with a TTL, and a few peers that announce once with a short timeout. Two trackers share
the store, one with long intervals for the live peers, one with short ones for the silent peers, which also shows that
two reapers do not reap a peer twice. Exit status 1 if a peer is reaped late (after its timeout plus the allowed lag) or
early, or if the final counts are wrong.
"""

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import redis
import uvloop

from loadtest.bench import memory, processes
from loadtest.bench.loader import BenchError, send_all
from loadtest.bench.population import Peer, announce_target, make_peers

_POLL_SECONDS = 0.2
_GIVE_UP_SECONDS = 120.0
_STEP = 10_000
_FOREIGN_TTL_SECONDS = 86_400
_FOREIGN = """
for n = tonumber(ARGV[1]), tonumber(ARGV[2]) do redis.call('SET', 'foreign:' .. n, '1', 'EX', ARGV[3]) end
"""


@dataclass(frozen=True, slots=True)
class Silent:
    """A peer that stopped announcing: its set, and the end of its timeout (epoch seconds)."""

    members_key: str
    member: str
    deadline: float


@dataclass(frozen=True, slots=True)
class Outcome:
    lags: Sequence[float]
    missing: int
    """Peers still listed when the experiment gave up."""
    peers_left: int
    """By the tracker's counts, at the end."""


def main() -> None:
    options = parse_options()
    try:
        with tempfile.TemporaryDirectory(prefix="experiment-") as directory:
            outcome = experiment(options, Path(directory))
    except BenchError as error:
        sys.exit("\n".join([f"experiment void: {error}", *getattr(error, "__notes__", [])]))
    lags = sorted(outcome.lags)
    if lags:
        print(f"lag after the timeout, s: first {lags[0]:.2f}, median {lags[len(lags) // 2]:.2f}, worst {lags[-1]:.2f}")
    print(f"reaped {len(lags)} of {options.silent}; {outcome.peers_left} peers left, {options.live} are live")
    in_time = not outcome.missing and lags[0] >= 0 and lags[-1] <= options.allowed_lag
    sys.exit(0 if in_time and outcome.peers_left == options.live else 1)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--silent", type=int, default=200, help="peers that stop announcing (200)")
    parser.add_argument("--live", type=int, default=200_000, help="peers that stay (200,000)")
    parser.add_argument("--foreign", type=int, default=1_000_000, help="other keys with a TTL (1,000,000)")
    parser.add_argument("--torrents", type=int, default=10_000, help="torrents for both kinds (10,000)")
    parser.add_argument("--timeout", type=int, default=30, help="seconds until a silent peer is due (30)")
    parser.add_argument("--allowed-lag", type=float, default=5.0, help="seconds a reap may be late (5)")
    parser.add_argument("--no-config", action="store_true", help="forbid CONFIG and disable key events")
    return parser.parse_args()


def experiment(options: argparse.Namespace, directory: Path) -> Outcome:
    peers = make_peers(options.live + options.silent, options.torrents)
    live, silent = peers[: options.live], peers[options.live :]
    with contextlib.ExitStack() as stack:
        without = ["--notify-keyspace-events", "", "--rename-command", "CONFIG", ""] if options.no_config else []
        _, path = stack.enter_context(processes.store(directory, *without))
        url = f"unix://{path}"
        store = stack.enter_context(redis.Redis(unix_socket_path=str(path)))
        _, live_port = stack.enter_context(processes.tracker(directory, "live", TRACKER_REDIS__URL=url))
        short = _short_timeouts(options.timeout)
        _, silent_port = stack.enter_context(processes.tracker(directory, "silent", TRACKER_REDIS__URL=url, **short))
        _log(f"filling the store: {options.foreign:,} foreign keys, {options.live:,} live peers")
        _add_foreign_keys(store, options.foreign)
        _announce(live_port, live)
        _announce(silent_port, silent)
        _expect_peers(store, len(peers))
        due = _read_deadlines(store, silent, options.timeout)
        _log(f"waiting for {len(due):,} timeouts")
        lags = _watch(store, due)
        return Outcome(lags, len(due) - len(lags), memory.active_peers(store, options.live))


def _log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _short_timeouts(seconds: int) -> dict[str, str]:
    """A timeout is 1.5 announce intervals, and at least the reaper's interval."""
    return {
        "TRACKER_ANNOUNCE__INTERVAL_SECONDS": str(max(1, seconds * 2 // 3)),
        "TRACKER_ANNOUNCE__MIN_INTERVAL_SECONDS": "0",
        "TRACKER_ANNOUNCE__INTERVAL_JITTER": "0",
        "TRACKER_REAPER__INTERVAL_SECONDS": str(seconds),
    }


def _add_foreign_keys(store: "redis.Redis", count: int) -> None:
    for first in range(0, count, _STEP):
        store.eval(_FOREIGN, 0, str(first), str(min(first + _STEP, count) - 1), str(_FOREIGN_TTL_SECONDS))


def _announce(port: int, peers: Iterable[Peer]) -> None:
    uvloop.run(send_all(port, [announce_target(peer, "started", peers_wanted=0) for peer in peers]))


def _expect_peers(store: "redis.Redis", expected: int) -> None:
    peers = memory.active_peers(store, expected)
    if peers != expected:
        raise BenchError(f"the store counts {peers} peers, {expected} were announced: is --timeout too short?")


def _read_deadlines(store: "redis.Redis", peers: Sequence[Peer], timeout: int) -> list[Silent]:
    """Reads the end of each timeout from the store. Raises BenchError if it is not the requested timeout.

    Reads each key once, long before its end: reading an expired key deletes it, and does the reaper's work.
    """
    now, found = time.time(), []
    for some in _steps(peers):
        ids = [int(known or 0) for known in store.mget([f"t:info_hash:{peer.info_hash.hex()}" for peer in some])]
        pipeline = store.pipeline(transaction=False)
        for peer, torrent_id in zip(some, ids, strict=True):
            pipeline.pexpiretime(f"t:ptimeout:{torrent_id}:{peer.peer_id.hex()}")
        for peer, expires_ms in zip(some, pipeline.execute(), strict=True):
            deadline = expires_ms / 1000
            if not now < deadline <= now + timeout + 1:
                raise BenchError(f"a timeout ends in {deadline - now:.1f} s, {timeout} were requested")
            found.append(Silent(f"t:tpeers:{peer.info_hash.hex()}", peer.peer_id.hex(), deadline))
    return found


def _steps(items: Sequence[Peer]) -> Iterable[Sequence[Peer]]:
    return (items[start : start + _STEP] for start in range(0, len(items), _STEP))


def _watch(store: "redis.Redis", due: list[Silent]) -> list[float]:
    """Seconds from each peer's deadline to its removal from the swarm; reads only the swarms."""
    lags, give_up = [], max(peer.deadline for peer in due) + _GIVE_UP_SECONDS
    while due and time.time() < give_up:
        time.sleep(_POLL_SECONDS)
        pipeline = store.pipeline(transaction=False)
        for peer in due:
            pipeline.sismember(peer.members_key, peer.member)
        listed = pipeline.execute()
        now = time.time()
        lags += [now - peer.deadline for peer, here in zip(due, listed, strict=True) if not here]
        due = [peer for peer, here in zip(due, listed, strict=True) if here]
    return lags


if __name__ == "__main__":
    main()
