"""Trackers with something on every page of their dashboards: torrents, peers of several countries, jobs, users,
refusals.

Names are as long as they may be, and without a blank, wherever somebody else chooses them.
"""

import json
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from loadtest import trackers
from loadtest.geoip_databases import make_city, record
from loadtest.trackers import RunningTracker
from tests.e2e.conftest import StartTracker
from tests.e2e.requests import announce_path, get
from tests.waiting import until
from tracker.admin.pages.rendering import NAVIGATION

LONG = "Llanfairpwllgwyngyllgogerychwyrndrobwllllantysiliogogogoch" * 2
"""A name of one word, such as databases and .torrent files may hold."""
NETWORKS = {
    "192.0.2.0/24": record("GB", "WLS", LONG, "LL61"),
    "198.51.100.0/24": record("US", "IL", "Springfield", "62701"),
    "203.0.113.0/24": record("VC", "01", "Kingstown", "VC0100"),
}
_MENU = tuple(link.href for _, links in NAVIGATION for link in links)


@dataclass
class Scene:
    """A tracker, a token for all of its dashboard, and the paths of its pages."""

    tracker: RunningTracker
    token: str
    paths: tuple[str, ...]

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """The answer of the API, which must be a success."""
        connection = HTTPConnection(self.tracker.admin_url.removeprefix("http://"), timeout=trackers.SECONDS)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, f"/api/v1{path}", text, headers)
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        assert answer.status < 300, data
        return json.loads(data) if data else None


def _scene(tracker: RunningTracker, paths: tuple[str, ...]) -> Scene:
    made = trackers.run(tracker.log_file.parent, "token", "create", "operator", "--json")
    return Scene(tracker, json.loads(made.stdout)["token"], paths)


def public_scene(start_tracker: StartTracker, tmp_path: Path) -> Scene:
    """Open to any torrent; peers come from three countries."""
    tracker = start_tracker(
        TRACKER_GEOIP__DATABASE=str(make_city(tmp_path / "city.mmdb", NETWORKS)),
        TRACKER_HTTP__TRUSTED_PROXIES="127.0.0.0/8",
    )
    named, denied, disabled = (digit * 40 for digit in "123")
    details = (f"/torrents/{named}", f"/torrents/{denied}", f"/torrents/{disabled}", "/torrents/0")
    boards = tuple(f"/world/{board}" for board in ("countries", "cities", "postcodes", "torrents"))
    more = ("/torrents/add", "/torrents/denied", "/torrents?q=nothing", "/jobs/1", "/clients?period=2020-01")
    scene = _scene(tracker, (*_MENU, *details, *boards, *more))
    scene.ask("POST", "/torrents", {"info_hash": named, "name": LONG})
    scene.ask("POST", "/torrents", {"info_hash": denied, "private": True})
    scene.ask("PUT", f"/denials/{denied}", {"reason": LONG})
    scene.ask("POST", "/torrents", {"info_hash": disabled, "enabled": False, "reason": LONG})
    scene.ask("PUT", "/clients/-TR40", {"name": LONG[:100]})
    scene.ask("POST", "/tokens", {"name": "grafana", "scope": "read"})
    for number, network in enumerate(NETWORKS):
        for digit in "12":
            asked = announce_path(
                info_hash=bytes.fromhex(digit * 40),
                peer_id=b"-qB5020-%012d" % number,
                left=number % 2 * 1000,
            )
            get(tracker.url, asked, headers={"X-Forwarded-For": network.replace(".0/24", ".7")})
    until(lambda: len(scene.ask("GET", "/uniques/countries")["items"]) == len(NETWORKS))
    scene.ask("POST", "/sweep")
    scene.ask("POST", "/reprocess", {})
    return scene


def private_scene(start_tracker: StartTracker) -> Scene:
    """For users with passkeys; one has a torrent, one may only seed, one is disabled."""
    tracker = start_tracker("private", TRACKER_USERS__PRIVATE="true")
    users = ("/users", "/users/1", "/users/2", "/users/1?set=hnr", "/users/owing", "/users?id=9")
    scene = _scene(tracker, ("/", "/torrents", "/torrents/add", *users))
    passkey = scene.ask("POST", "/users", {"user_id": "1"})["passkey"]
    scene.ask("POST", "/users", {"user_id": "2", "can_leech": False})
    scene.ask("POST", "/users", {"user_id": "3"})
    scene.ask("PATCH", "/users/3", {"enabled": False})
    get(tracker.url, announce_path(passkey, left=1000))
    get(tracker.url, announce_path("0" * 32))
    return scene
