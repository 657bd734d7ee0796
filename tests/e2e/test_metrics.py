"""Metrics of a tracker with several processes, read as Prometheus does, with a token from the command line."""

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest

from loadtest import trackers
from loadtest.trackers import RunningTracker
from tests import commands
from tests.admin.scraping import Samples, samples_of
from tests.waiting import until

SECONDS = 30.0
WORKERS = 2


@pytest.fixture
def tracker(tmp_path: Path) -> Iterator[RunningTracker]:
    tracker = trackers.start(tmp_path, TRACKER_HTTP__WORKERS=str(WORKERS))
    yield tracker
    tracker.kill()


def web_processes(tracker: RunningTracker) -> list[int]:
    children = Path(f"/proc/{tracker.process.pid}/task/{tracker.process.pid}/children").read_text().split()
    return [int(pid) for pid in children if b"web_process" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def get(url: str, path: str, **headers: str) -> tuple[int, str]:
    connection = HTTPConnection(url.removeprefix("http://"), timeout=SECONDS)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def total(samples: Samples, name: str, **labels: str) -> float:
    return sum(v for (n, of), v in samples.items() if n == name and set(labels.items()) <= of)


@pytest.mark.long
@pytest.mark.slow
def test_metrics_are_sums_over_all_processes_including_ended_ones(tracker: RunningTracker, tmp_path: Path) -> None:
    made = commands.run(tmp_path, "token", "create", "prometheus", "--read-only", "--json")
    token = json.loads(made.stdout)["token"]
    found = re.search(r"admin\s+(http://127\.0\.0\.1:\d+)", tracker.banner)
    assert found, tracker.banner
    admin = found[1]

    def metrics() -> Samples:
        status, text = get(admin, "/metrics", Authorization=f"Bearer {token}")
        assert status == 200, text
        return samples_of(text)

    def scraped(condition: Callable[[Samples], bool]) -> Samples:
        found: list[Samples] = []

        def holds() -> bool:
            found.append(metrics())
            return condition(found[-1])

        until(holds)
        return found[-1]

    for number in range(20):
        tracker.announce(peer_id=f"-TR4000-{number:012}", port=str(7000 + number))
    samples = scraped(lambda now: total(now, "tracker_announces_total") == 20)
    scraped(lambda now: total(now, "tracker_processes") == 1 + WORKERS)
    assert total(samples, "tracker_peers", state="seeder") == 20

    killed = web_processes(tracker)[0]
    os.kill(killed, signal.SIGKILL)
    scraped(lambda now: killed not in web_processes(tracker) and total(now, "tracker_processes") == 1 + WORKERS)
    tracker.announce(peer_id="-TR4000-mnopqrstuvwx")
    samples = scraped(lambda now: total(now, "tracker_announces_total") > 20)
    assert total(samples, "tracker_announces_total") == 21
    assert total(samples, "tracker_store_up") == 1
    assert get(tracker.url, "/ready") == (200, "ready\n")
    assert tracker.end() == 0
