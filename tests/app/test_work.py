"""The claimants' listener of a whole tracker: its process, its address, its settings."""

import json
import re
from http.client import HTTPConnection

import pytest

from tests.app.conftest import StartTracker


def status(address: str, path: str, body: object) -> int:
    connection = HTTPConnection(address, timeout=20)
    try:
        connection.request("POST", path, json.dumps(body))
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.usefixtures("own_interpreter")
def test_a_tracker_serves_claimants_where_a_setting_says_so(start_tracker: StartTracker) -> None:
    """With several web processes their parent serves them. Without a project the paths answer 404."""
    tracker = start_tracker(TRACKER_WORK__LISTEN="127.0.0.1:0", TRACKER_HTTP__WORKERS="2")
    found = re.search(r"^ +work +http://(127\.0\.0\.1:\d+)/", tracker.banner, re.MULTILINE)
    assert found, tracker.banner
    assert status(found[1], "/proj/request", {"downloader": "volunteer_1"}) == 404
    assert tracker.end() == 0


def test_without_an_address_nothing_listens(start_tracker: StartTracker) -> None:
    """W17."""
    tracker = start_tracker()
    assert "work" not in tracker.banner
    assert tracker.end() == 0
