"""A site's own code tells a whole tracker about its users and torrents, and announces show what each call did.

UNIT3D's calls are made by PHP (unit3d_service.php), Gazelle's as GET requests on a raw socket.
"""

import base64
import json
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote

import bencodepy
import pytest
from redis import Redis

from loadtest.servers import Server
from loadtest.trackers import RunningTracker
from tests.e2e.conftest import StartTracker
from tests.waiting import until

SCRIPT = Path(__file__).with_name("unit3d_service.php")
KEY, REPORT_KEY = "k" * 40, "r" * 32
ALICE, BOB, CAROL = ("a" * 32, "b" * 32, "c" * 32)
HASH = b"\x01" * 20
PRIVATE = {
    "TRACKER_SITE__LISTEN": "127.0.0.1:0",
    "TRACKER_SITE__KEY": KEY,
    "TRACKER_SITE__REPORT_KEY": REPORT_KEY,
    "TRACKER_USERS__PRIVATE": "required",
    "TRACKER_USERS__BEYOND_MAX_DOWNLOADS": "warning",
    "TRACKER_TORRENTS__MODE": "registered",
    "TRACKER_CLIENTS__DENY_LIST": "true",
}
TORRENT = {"id": 700, "info_hash": base64.b64encode(HASH).decode()}


def site_address(tracker: RunningTracker) -> str:
    found = re.search(r"^ +site +(\S+)$", tracker.banner, re.MULTILINE)
    assert found, tracker.banner
    return found[1]


class Service:
    """The PHP process."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def __call__(self, name: str, *arguments: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([name, arguments]) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


@contextmanager
def service(url: str, *, key: str = KEY, unix_socket: str = "") -> Iterator[Service]:
    if shutil.which("php") is None or "curl" not in subprocess.check_output(["php", "-m"], text=True):
        pytest.skip("no php with curl on this system")
    command = ["php", str(SCRIPT), url, key, "0.01", *([unix_socket] if unix_socket else [])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Service(process)
        finally:
            process.kill()


class Client:
    """A BitTorrent client of a user, whose announce URL has ``/announce/<passkey>``, as UNIT3D writes it."""

    def __init__(
        self, tracker: RunningTracker, passkey: str, *, path: str = "/announce/{}", name: str = "-TR4000-"
    ) -> None:
        self._address = tracker.url.removeprefix("http://")
        self._path = path.format(passkey)
        self._id = name + passkey[: 20 - len(name)]
        self._port = 6000 + ord(passkey[0])
        self.sent = {"uploaded": 0, "downloaded": 0, "left": 1000}

    def announce(self, event: str = "", info_hash: bytes = HASH, **numbers: int) -> dict[bytes, Any]:
        self.sent |= numbers
        fields = {"info_hash": quote(info_hash), "peer_id": self._id, "port": self._port, "event": event, **self.sent}
        query = "&".join(f"{name}={value}" for name, value in fields.items())
        with closing(HTTPConnection(self._address, timeout=30)) as connection:
            connection.request("GET", f"{self._path}?{query}")
            reply: dict[bytes, Any] = bencodepy.decode(connection.getresponse().read())
        return reply


def failure(reply: dict[bytes, Any]) -> str:
    return str(reply.get(b"failure reason", b"").decode())


class Totals:
    """What users were credited, as the store has it."""

    def __init__(self, valkey: Server, prefix: str) -> None:
        self._valkey, self._prefix = valkey, prefix

    def __call__(self, user_id: int) -> tuple[int, int]:
        with Redis.from_url(self._valkey.url) as store:
            found = store.hmget(f"{self._prefix}u:{user_id}", "uploaded", "downloaded")
        uploaded, downloaded = (int(each or 0) for each in found)
        return uploaded, downloaded


@pytest.fixture
def totals(valkey: Server, prefix: str) -> Totals:
    return Totals(valkey, prefix)


@pytest.fixture
def tracker(start_tracker: StartTracker, valkey: Server, prefix: str) -> RunningTracker:
    store = {"TRACKER_REDIS__URL": valkey.url, "TRACKER_REDIS__PREFIX": prefix}
    return start_tracker(**PRIVATE, **store)


def test_unit3d_tells_of_users_and_torrents(tracker: RunningTracker) -> None:
    alice, bob = Client(tracker, ALICE), Client(tracker, BOB)
    with service(f"http://{site_address(tracker)}") as call:
        assert "passkey" in failure(alice.announce("started"))
        assert call("addUser", {"id": 7, "passkey": ALICE})
        assert call("addUser", {"id": 8, "passkey": BOB, "can_download": False})
        assert "not registered" in failure(alice.announce("started"))
        assert call("addTorrent", {**TORRENT, "status": 0})
        waiting = alice.announce("started")
        assert "approval" in failure(waiting)
        assert int(waiting[b"retry in"]) <= 1
        assert call("addTorrent", TORRENT)
        assert not failure(alice.announce("started"))
        assert "may not download" in failure(bob.announce("started"))
        assert call("addUser", {"id": 8, "passkey": BOB})
        assert bob.announce("started")[b"peers"]  # Alice's
        _replaces_and_removes(call, tracker)
    assert tracker.end() == 0


def _replaces_and_removes(call: Service, tracker: RunningTracker) -> None:
    assert call("addUser", {"id": 7, "passkey": ALICE, "new_passkey": CAROL})
    assert "passkey" in failure(Client(tracker, ALICE).announce("started"))
    assert not failure(Client(tracker, CAROL).announce("started"))
    assert not failure(Client(tracker, CAROL, path="/{}/announce").announce())
    assert call("removeTorrent", TORRENT)
    assert "not registered" in failure(Client(tracker, CAROL).announce())
    assert call("addTorrent", TORRENT)
    assert not failure(Client(tracker, CAROL).announce("started"))
    assert call("removeUser", {"id": 7, "passkey": CAROL})
    assert "passkey" in failure(Client(tracker, CAROL).announce("started"))
    assert call("getUser", 7) == call("getTorrent", 701) == 404


def test_each_rule_of_unit3d_counts_from_the_next_announce_on(tracker: RunningTracker, totals: Totals) -> None:
    alice, group, user = Client(tracker, ALICE), {"id": 3, "slug": "user"}, {"id": 7, "passkey": ALICE}
    with service(f"http://{site_address(tracker)}") as call:
        assert call("addUser", user)
        assert call("addTorrent", TORRENT)
        alice.announce("started")
        steps: list[tuple[list[Any], float, float]] = [
            (["addTorrent", {**TORRENT, "free": 50, "doubleup": True}], 2, 0.5),
            (["addFeaturedTorrent", 700], 2, 0),
            (["addTorrent", TORRENT], 2, 0),
            (["removeFeaturedTorrent", 700], 1, 1),
            (["addUser", {**user, "is_donor": True}], 1, 0),
            (["addUser", {**user, "is_lifetime": True}], 1, 0),
            (["addUser", user], 1, 1),
            (["addPersonalFreeleech", 7], 1, 0),
            (["removePersonalFreeleech", 7], 1, 1),
            (["addGroup", {**group, "is_double_upload": True}], 2, 1),
            (["addGroup", {**group, "is_freeleech": True}], 1, 0),
            (["removeGroup", 3], 1, 1),
            (["addFreeleechToken", 7, 700], 1, 0),
        ]
        for (name, *arguments), up, down in steps:
            assert call(name, *arguments), name
            before = totals(7)
            alice.sent["uploaded"] += 1000
            alice.sent["downloaded"] += 100
            assert not failure(alice.announce())
            after = totals(7)
            assert (after[0] - before[0], after[1] - before[1]) == (1000 * up, 100 * down), (name, arguments)
    assert tracker.end() == 0


def test_groups_and_clients_of_unit3d_are_refused(tracker: RunningTracker) -> None:
    alice = Client(tracker, ALICE)
    with service(f"http://{site_address(tracker)}") as call:
        for number in (1, 2):
            info_hash = base64.b64encode(bytes([number]) * 20).decode()
            assert call("addTorrent", {"id": number, "info_hash": info_hash})
        assert call("addUser", {"id": 7, "passkey": ALICE})
        assert call("addGroup", {"id": 3, "slug": "banned"})
        assert "group" in failure(alice.announce("started"))
        assert call("addGroup", {"id": 3, "slug": "user", "download_slots": 1})
        assert not failure(alice.announce("started"))
        second = alice.announce("started", info_hash=b"\x02" * 20)
        assert (failure(second), second[b"peers"]) == ("", b"")
        assert b"as many torrents as you may" in second[b"warning message"]
        assert call("addGroup", {"id": 3, "slug": "user", "download_slots": 2})
        assert b"warning message" not in alice.announce("started", info_hash=b"\x02" * 20)
        assert call("addBlacklistedAgent", "-TR40")
        until(lambda: "deny list" in failure(alice.announce()))
        assert call("removeBlacklistedAgent", "-TR40")
        until(lambda: not failure(alice.announce("started")))
    assert tracker.end() == 0


def test_what_unit3d_shows_to_its_staff(tracker: RunningTracker) -> None:
    alice = Client(tracker, ALICE)
    with service(f"http://{site_address(tracker)}") as call:
        assert call("addUser", {"id": 7, "passkey": ALICE, "is_donor": True})
        assert call("addUser", {"id": 8, "passkey": BOB})
        assert call("addTorrent", {**TORRENT, "free": 67})
        Client(tracker, BOB).announce("started", left=0)
        assert alice.announce("started", uploaded=5, downloaded=6)[b"peers"]
        shown = call("getTorrent", 700)
        peers = shown.pop("peers")
        assert len(peers) == 2
        peer = peers[f"7-{(b'-TR4000-' + ALICE.encode())[:20].hex()}"]
        assert (peer["ip_address"], peer["port"], peer["is_seeder"]) == ("127.0.0.1", 6097, False)
        assert (peer["is_active"], peer["is_visible"], peer["updated_at"] > 1_700_000_000) == (True, True, True)
        assert (shown["seeders"], shown["leechers"]) == (1, 1)
        assert (shown["status"], shown["download_factor"], shown["upload_factor"]) == ("Approved", 33, 100)
        user = call("getUser", 7)
        seed, leech = (user.pop(f"receive_{kind}_list_rates")["rates"] for kind in ("seed", "leech"))
        assert user == {
            "id": 7,
            "group_id": 3,
            "passkey": ALICE,
            "can_download": True,
            "is_donor": True,
            "is_lifetime": False,
            "num_seeding": 0,
            "num_leeching": 1,
        }
        assert [rate["max_count"] for rate in leech] == [300, 20_000]
        assert [rate["max_count"] for rate in seed] == [75, 5_000]
        assert [round(rate["count"]) for rate in leech] == [1, 1]
        assert [rate["count"] for rate in seed] == [0, 0]
        until(lambda: call("getStats")["announce_responses_per_60s"] > 0)
        stats = call("getStats")
        assert all(isinstance(value, float) for value in stats.values())
        assert stats["created_at"] <= stats["last_announce_response_at"] <= stats["last_request_at"]
    assert tracker.end() == 0


def test_unit3d_may_use_a_unix_socket(start_tracker: StartTracker, short_directory: Path) -> None:
    path = short_directory / "site"
    tracker = start_tracker(**{**PRIVATE, "TRACKER_SITE__LISTEN": f"unix:{path}"})
    assert site_address(tracker) == f"unix:{path}"
    with service("http://localhost", unix_socket=str(path)) as call:
        assert call("addUser", {"id": 7, "passkey": ALICE})
        assert call("getUser", 7)["id"] == 7
    assert tracker.end() == 0


@contextmanager
def failing_twice(address: str) -> Iterator[str]:
    """An address whose first two connections end without an answer; others reach ``address``."""
    host, _, port = address.rpartition(":")

    def serve() -> None:
        for number in range(3):
            client, _ = listener.accept()
            with client:
                if number < 2:
                    continue
                with socket.create_connection((host, int(port))) as upstream:
                    upstream.sendall(client.recv(65_536))
                    client.sendall(upstream.recv(65_536))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join(30)


def test_unit3d_tries_three_times(tracker: RunningTracker) -> None:
    with failing_twice(site_address(tracker)) as address, service(f"http://{address}") as call:
        assert call("addUser", {"id": 7, "passkey": ALICE})
    with service(f"http://{site_address(tracker)}") as call:
        assert call("getUser", 7)["passkey"] == ALICE
    with service(f"http://{site_address(tracker)}", key="x" * 40) as call:
        assert not call("removeUser", {"id": 7, "passkey": ALICE})
    assert tracker.end() == 0


def gazelle(tracker: RunningTracker, path: str) -> str:
    """Sends a request as Gazelle does, without a Host, and reads until the end of the connection."""
    host, _, port = site_address(tracker).rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(f"GET /{path} HTTP/1.1\r\nConnection: Close\r\n\r\n".encode())
        reply = b""
        while data := connection.recv(65_536):
            reply += data
    return reply.decode()


def test_gazelle_makes_all_of_its_calls(
    start_tracker: StartTracker, valkey: Server, prefix: str, totals: Totals
) -> None:
    """To a tracker of several web processes, whose parent answers the site."""
    store = {"TRACKER_REDIS__URL": valkey.url, "TRACKER_REDIS__PREFIX": prefix}
    tracker = start_tracker(**PRIVATE, **store, TRACKER_HTTP__WORKERS="2")
    alice, bob = Client(tracker, ALICE, path="/{}/announce"), Client(tracker, BOB, path="/{}/announce")
    info_hash = quote(HASH, safe="")

    def tell(action: str, **fields: str | int) -> None:
        query = "".join(f"&{name}={value}" for name, value in fields.items())
        reply = gazelle(tracker, f"{KEY}/update?action={action}{query}")
        assert reply.rpartition("\n")[2] == "success", (action, reply)

    def credited() -> tuple[int, int]:
        before = totals(7)
        alice.sent["uploaded"] += 1000
        alice.sent["downloaded"] += 100
        assert not failure(alice.announce())
        after = totals(7)
        return after[0] - before[0], after[1] - before[1]

    tell("add_user", passkey=ALICE, id=7, visible=1)
    tell("add_user", passkey=BOB, id=8, visible=0)
    tell("add_torrent", id=700, info_hash=info_hash, freetorrent=0)
    assert bob.announce("started", left=0)[b"peers"] == b""
    assert alice.announce("started")[b"peers"] == b""  # Bob is in no list
    shown = gazelle(tracker, f"announce/{KEY}/torrents/700").partition("\r\n\r\n")[2]
    visible = {name[:1]: peer["is_visible"] for name, peer in json.loads(shown)["peers"].items()}
    assert visible == {"7": True, "8": False}
    assert credited() == (1000, 100)
    tell("update_torrent", info_hash=info_hash, freetorrent=1)
    assert credited() == (1000, 0)
    tell("update_torrents", info_hashes=info_hash * 2, freetorrent=2)
    assert credited() == (0, 0)
    tell("update_torrent", info_hash=info_hash, freetorrent=0)
    tell("add_token", info_hash=info_hash, userid=7)
    assert credited() == (1000, 0)
    tell("remove_token", info_hash=info_hash, userid=7)
    assert credited() == (1000, 100)
    tell("info_torrent", info_hash=info_hash)
    report = gazelle(tracker, f"{REPORT_KEY}/report?get=user&key={ALICE}")
    assert report.endswith("1 leeching\n0 seeding\nsuccess")
    assert " leechers tracked\n" in gazelle(tracker, f"{REPORT_KEY}/report?get=stats")
    tell("update_announce_interval", new_announce_interval=4000)
    until(lambda: int(alice.announce()[b"interval"]) >= 3600)
    tell("update_user", passkey=ALICE, can_leech=0, visible=1)
    assert "may not download" in failure(alice.announce("started"))
    tell("change_passkey", oldpasskey=ALICE, newpasskey=CAROL)
    assert "passkey" in failure(alice.announce("started", left=0))
    tell("remove_user", passkey=CAROL)
    assert "disabled on the site" in failure(Client(tracker, CAROL).announce("started", left=0))
    tell("remove_users", passkeys=CAROL + BOB)
    assert "disabled on the site" in failure(bob.announce("started"))
    for action in ("add_whitelist", "remove_whitelist"):
        tell(action, peer_id="-TR")
    tell("edit_whitelist", old_peer_id="-TR", new_peer_id="-qB")
    tell("delete_torrent", info_hash=info_hash, reason=0)
    tell("add_user", passkey=BOB, id=8, visible=1)
    assert "Unregistered torrent: Dupe" in failure(bob.announce("started"))
    assert tracker.end() == 0
