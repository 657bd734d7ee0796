"""Background work of a tracker process: locations, scores, counters, jobs and StatHat."""

import json
import random
import signal
import time
from functools import partial
from pathlib import Path

import pytest
from redis import Redis

from loadtest.geoip_databases import LONDON, SPRINGFIELD, make_city
from loadtest.servers import Server
from loadtest.trackers import RunningTracker
from tests import commands
from tests.e2e.conftest import StartTracker
from tests.e2e.requests import announce_path, get
from tests.waiting import until
from tests.workers.stathat_server import KEY, stathat_in_thread
from tracker.store.stats.slices import PRECISIONS

IN_LONDON, IN_SPRINGFIELD = "127.0.0.1", "127.0.0.2"
MINUTE = 60.0


def run_json(tracker: RunningTracker, *words: str) -> list[dict[str, object]]:
    """Runs a command beside the running tracker and returns its JSON lines."""
    done = commands.run(tracker.log_file.parent, *words, "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def users(tracker: RunningTracker, scope: str) -> dict[object, object]:
    """Returns the leaderboard of a scope: place -> users."""
    return {row["place"]: row["users"] for row in run_json(tracker, "unique", "top", scope)}


def totals(tracker: RunningTracker, precision: int, *names: str) -> list[int]:
    """Returns the sums of these counters' slices. One command reads all, because starting a command is slow."""
    found = {row["name"]: row["total"] for row in run_json(tracker, "stats", "--precision", str(precision), *names)}
    return [int(str(found.get(name, 0))) for name in names]


@pytest.mark.long
@pytest.mark.timeout(300)
def test_two_clients_change_locations_scores_counters_and_stathat(start_tracker: StartTracker, tmp_path: Path) -> None:
    """B2, B8, B12, B13, C1, Q15 with real clients. StatHat gets the counts of a minute after its end."""
    pytest.importorskip("libtorrent", reason="libtorrent has no wheel for this interpreter or system")
    from tests.e2e.peers import Peer, Share  # noqa: PLC0415  # needs libtorrent

    database = make_city(tmp_path / "places.mmdb", {f"{IN_LONDON}/32": LONDON, f"{IN_SPRINGFIELD}/32": SPRINGFIELD})
    with stathat_in_thread() as stathat:
        tracker = start_tracker(
            TRACKER_GEOIP__DATABASE=str(database),
            TRACKER_SCORING__INTERVAL_SECONDS="8",  # long enough: the 24th scoring removes it from the ranking
            TRACKER_STATHAT__EZKEY=KEY,
            TRACKER_STATHAT__URL=stathat.url,
        )
        share = Share.make(tmp_path / "source", size=300_000)
        torrent = share.torrent(f"{tracker.url}/announce")
        with (
            Peer(torrent, share.folder, f"{IN_LONDON}:0") as seeder,
            Peer(torrent, tmp_path / "target", f"{IN_SPRINGFIELD}:0") as leecher,
        ):
            seeder.until("tracker_reply")
            leecher.until("torrent_finished")
            until(lambda: users(tracker, "countries") == {"United_Kingdom": 1, "United_States": 1})
            assert users(tracker, "cities") == {"United_Kingdom/London": 1, "United_States/Springfield": 1}
            assert users(tracker, "postcodes") == {"United_Kingdom/SW1A": 1, "United_States/62701": 1}
            [row] = run_json(tracker, "unique", "top", "torrents")
            assert (row["info_hash"], row["users"]) == (share.info_hash.hex(), 2)
            until(lambda: float(str(run_json(tracker, "torrent", "list")[0]["score"])) < 1)

        def counted(precision: int) -> bool:
            joins, down = totals(tracker, precision, "joins", "bytes.down")
            return joins == 2 and down >= len(share.content)

        for precision in PRECISIONS:
            until(partial(counted, precision))
        britain, states = "countries.United_Kingdom.users", "countries.United_States.users"
        for sent in (britain, states, "announces", "torrents.processed"):
            until(lambda sent=sent: stathat.accepted[sent] > 0, 2.5 * MINUTE)  # type: ignore[misc]
        assert stathat.accepted[britain] == stathat.accepted[states] == 1
        assert stathat.accepted["torrents.processed"] == stathat.values["torrents.count"][-1] == 1
        assert "announces.started" not in stathat.accepted
    assert tracker.end() == 0
    assert KEY not in tracker.log


@pytest.mark.long
@pytest.mark.parametrize("mode", ["exact", "hashed"])
def test_a_kill_at_any_time_leaves_no_count_without_its_marker(
    start_tracker: StartTracker, tmp_path: Path, valkey: Server, prefix: str, mode: str
) -> None:
    """B9: the tracker is killed during joins, three times. Then all peers join again, and each has counted once."""
    database = make_city(tmp_path / "places.mmdb", {"11.0.0.0/8": LONDON})
    settings = {
        "TRACKER_REDIS__URL": valkey.url,
        "TRACKER_REDIS__PREFIX": prefix,
        "TRACKER_GEOIP__DATABASE": str(database),
        "TRACKER_UNIQUES__MODE": mode,
        "TRACKER_HTTP__TRUSTED_PROXIES": "127.0.0.0/8",
    }
    peers = range(60)

    def join(tracker: RunningTracker, peer: int) -> None:
        path = announce_path(peer_id=b"-XX0001-%012d" % peer, event="started")
        get(tracker.url, path, headers={"X-Forwarded-For": f"11.0.0.{peer}"})

    def leave(tracker: RunningTracker, peer: int) -> None:
        path = announce_path(peer_id=b"-XX0001-%012d" % peer, event="stopped")
        get(tracker.url, path, headers={"X-Forwarded-For": f"11.0.0.{peer}"})

    with Redis.from_url(valkey.url) as store:

        def markers() -> int:
            start = f"{prefix}countries.United_Kingdom.users."
            month = time.strftime("%Y-%m", time.gmtime())
            return sum(1 for key in store.scan_iter(f"{start}*", 1000) if not key.endswith(month.encode()))

        def counted() -> int:
            return int(store.get(f"{prefix}countries.United_Kingdom.users") or 0)

        def has_counted(number: int) -> bool:
            return counted() >= number

        for _ in range(3):
            tracker, before = start_tracker(**settings), counted()
            for peer in random.sample(peers, 20):
                join(tracker, peer)
                leave(tracker, peer)
            wanted = before + random.randint(0, max(0, 20 - before))
            until(partial(has_counted, wanted), poll_seconds=0.001)  # before, during or after a batch
            tracker.send(signal.SIGKILL)
            tracker.wait()
            assert counted() == markers()
        tracker = start_tracker(**settings)
        for peer in peers:
            join(tracker, peer)
        assert tracker.end() == 0
        assert counted() == markers() == len(peers)
