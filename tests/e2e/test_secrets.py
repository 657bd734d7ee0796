"""A tracker gets secrets in every setting and request, and logs as much as possible. No output contains a secret."""

import json
import os
import re
import socket
from collections.abc import Callable
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest

from loadtest import trackers
from loadtest.servers import Server
from loadtest.trackers import RunningTracker
from tests import commands
from tests.e2e.conftest import StartTracker
from tests.waiting import until

STORE, STATHAT, UPSTREAM, SENTINEL = ("storehunter2", "stathathunter2", "upstreamhunter2", "sentinelhunter2")
UNKNOWN, CLIENT_KEY, PROXY, NONSENSE = (f"{word}hunter2hunter2" for word in ("nobody", "client", "proxy", "odd"))
SITE = "sitehunter2" * 3
VERBOSE = {
    "TRACKER_LOG__LEVEL": "debug",
    "TRACKER_HTTP__ACCESS_LOG": "true",
    "TRACKER_HTTP__WORKERS": "2",
    "TRACKER_USERS__PRIVATE": "required",
    "TRACKER_SITE__LISTEN": "127.0.0.1:0",
    "TRACKER_SITE__KEY": SITE,
    "TRACKER_STATHAT__EZKEY": STATHAT,
    "TRACKER_STATHAT__URL": "http://127.0.0.1:9",
    "TRACKER_SCORING__UPSTREAMS": f"http://127.0.0.1:9/{UPSTREAM}/announce",
}


def descendants(pid: int) -> list[int]:
    """Returns the PIDs of a process and its descendants."""
    if not Path("/proc/self/task").exists():
        pytest.skip("needs /proc")
    found = [pid]
    for parent in found:
        for thread in Path(f"/proc/{parent}/task").iterdir():
            found += map(int, (thread / "children").read_text().split())
    assert len(found) > 1 and os.getpid() not in found
    return found


def raw(tracker: RunningTracker, *requests: str) -> None:
    """Sends raw requests, each on a new connection, and ignores the replies."""
    host, _, port = tracker.url.removeprefix("http://").rpartition(":")
    for request in requests:
        with socket.create_connection((host, int(port)), trackers.SECONDS) as client:
            client.sendall(request.replace("\n", "\r\n").encode("latin-1"))
            client.shutdown(socket.SHUT_WR)
            while client.recv(65536):
                pass


class AdminClient:
    """A client of the admin port. ``output`` collects the bodies and headers of all replies, except cookies."""

    def __init__(self, tracker: RunningTracker) -> None:
        found = re.search(r"admin\s+http://([\d.:]+)/", tracker.banner)
        assert found, tracker.banner
        self._line = HTTPConnection(found[1], timeout=trackers.SECONDS)
        self.output = ""

    def ask(self, method: str, path: str, body: str = "", **headers: str) -> tuple[int, str]:
        """Sends a request and returns the status and the session cookie, if one was set."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if body:
            named["Content-Type"] = "application/x-www-form-urlencoded"
        self._line.request(method, path, body or None, named)
        answer = self._line.getresponse()
        shown = [(name, value) for name, value in answer.getheaders() if name != "Set-Cookie"]
        self.output += f"{shown}{answer.read().decode()}\n"
        return answer.status, (answer.getheader("Set-Cookie") or "").partition("=")[2].partition(";")[0]

    def close(self) -> None:
        self._line.close()


def call_as_site(tracker: RunningTracker, passkey: str) -> None:
    """Calls with the site's key and with another one, of which some are refused."""
    found = re.search(r"site +([\d.:]+)", tracker.banner)
    assert found, tracker.banner
    for key in (SITE, UNKNOWN):
        for path in (
            f"/{key}/update?action=change_passkey&oldpasskey={passkey}&newpasskey={passkey}",
            f"/{key}/update?action=add_user&id=9&passkey={passkey}",
            f"/{key}/update?action={NONSENSE}&passkey={passkey}",
            f"/announce/{key}/users/{passkey}",
            f"/announce/{key}/users/1",
        ):
            with closing(HTTPConnection(found[1], timeout=trackers.SECONDS)) as line:
                line.request("GET", path)
                assert line.getresponse().status < 500, path


PAGES = (
    *("/", "/torrents", "/users", "/users/1", "/jobs", "/clients", "/settings", "/doctor", "/tokens", "/api"),
    *("/nothing", "/metrics", "/ready", "/api/openapi.json", "/api/v1/settings", "/api/v1/users", "/api/v1/tokens"),
    *("/api/v1/doctor", "/api/v1/nothing", f"/api/v1/users/{UNKNOWN}", f"/users/{UNKNOWN}"),
)


def use(tracker: RunningTracker, client: AdminClient, home: Path, settings: dict[str, str]) -> dict[str, str]:
    """Sends valid and invalid requests of all kinds, and returns the secrets involved."""

    def made(*words: str) -> dict[str, str]:
        done = commands.run(home, *words, "--json", **settings)
        assert done.returncode == 0, done.stderr
        found: dict[str, str] = json.loads(done.stdout)
        return found

    passkey = made("user", "add", "--id", "1")["passkey"]
    token = made("token", "create", "site")["token"]
    link = commands.run(home, "sign-in-link", **settings).stdout.partition("/sign-in#")[2].split()[0]
    assert tracker.announce(passkey, key=CLIENT_KEY)[b"complete"] == 1
    for refused in (tracker.announce(UNKNOWN), tracker.announce(passkey, port="http%3A//x/" + passkey)):
        assert b"failure reason" in refused
    credentials = f"Proxy-Authorization: Basic {PROXY}\nAuthorization: Bearer {token}\nCookie: a={PROXY}"
    raw(
        tracker,
        f"GET /{passkey}/announce?{NONSENSE} HTTP/1.1\nHost: x\n{credentials}\n\n",
        f"GET /{passkey} HTTP/1.1\nHost: x\n\n",
        f"GET /announce/{passkey}?{NONSENSE} HTTP/1.1\nHost: x\n\n",
        f"GET /announce?passkey={passkey}&{NONSENSE} HTTP/1.1\nHost: x\n\n",
        f"GET /{passkey}/announce?passkey={passkey} HTTP/1.1\nHost: x\n\n",
        f"GET /scrape/{passkey}/{NONSENSE} HTTP/7.7\nHost: x\n\n",
        f"POST /scrape?passkey={passkey} HTTP/1.1\nHost: x\n\n",
        f"GET http://me:{PROXY}@x/{passkey}/announce HTTP/1.1\nHost: x\n\n",
        f"GET /{passkey}/announce HTTP/7.7\nHost: x\n{credentials}\n\n",
        f"POST /{passkey}/scrape HTTP/1.1\nHost: x\nContent-Length: {NONSENSE}\n\n",
        f"{NONSENSE} /{passkey}/announce",
    )
    call_as_site(tracker, passkey)
    status, session = client.ask("POST", "/sign-in", f"link={link}")
    assert status == 303
    assert client.ask("POST", "/sign-in", f"token={UNKNOWN}")[0] == 403
    assert client.ask("GET", "/api/v1/torrents", Authorization=f"Bearer swk_0123456789ab_{UNKNOWN}")[0] == 401
    for page in PAGES:
        reader = (
            {"Authorization": f"Bearer {token}"} if page[:4] == "/api" else {"Cookie": f"tracker_session={session}"}
        )
        assert client.ask("GET", page, **reader)[0] in ((404, 422) if "no" in page else (200,)), page
    client.ask("GET", "/settings", Authorization=f"Bearer {token}, {token}")
    return {"passkey": passkey, "token": token, "token's half": token[17:], "link": link, "session": session}


@pytest.mark.slow
@pytest.mark.usefixtures("own_interpreter")
def test_no_secret_is_printed(start_tracker: StartTracker, start_server: Callable[..., Server], tmp_path: Path) -> None:
    """Covers logs at debug level, the access log, banner, pages, errors, metrics, commands and process lists."""
    server = start_server("--appendonly", "no")
    with server.client() as client:
        client.config_set("requirepass", STORE)
    settings = {**VERBOSE, "TRACKER_REDIS__URL": f"unix://:{STORE}@{server.socket_path}"}
    tracker = start_tracker(**settings)
    with closing(AdminClient(tracker)) as client:
        found = use(tracker, client, tmp_path, settings)
        listed = b"".join(Path(f"/proc/{pid}/cmdline").read_bytes() for pid in descendants(tracker.process.pid))
        children = descendants(tracker.process.pid)[1:]
        limits = [Path(f"/proc/{pid}/limits").read_text() for pid in descendants(tracker.process.pid)]
        assert all(re.search(r"^Max core file size +0 ", text, re.MULTILINE) for text in limits), (
            "a core file would contain all secrets"
        )
        inherited = b"".join(Path(f"/proc/{pid}/environ").read_bytes() for pid in children)
        server.kill()
        assert b"failure reason" in tracker.announce(found["passkey"])
        until(lambda: client.ask("GET", "/ready")[0] == 503)
        outputs = [trackers.run(tmp_path, *words, **settings) for words in (("settings",), ("doctor",), ("health",))]
    assert tracker.end() == 0
    places = {
        "log": tracker.log,
        "banner": tracker.banner,
        "pages": client.output,
        "commands": "".join(done.stdout + done.stderr for done in outputs),
        "lists of processes": repr(listed + inherited),
    }
    secrets = {
        "store": STORE,
        "stathat": STATHAT,
        "upstream": UPSTREAM,
        "site": SITE,
        "unknown": UNKNOWN,
        "key": CLIENT_KEY,
    }
    secrets |= {"proxy": PROXY, "nonsense": NONSENSE, **found}
    assert all(len(text) > 100 for text in places.values()) and '"request"' in tracker.log
    assert not [(place, name) for place, text in places.items() for name, secret in secrets.items() if secret in text]


@pytest.mark.parametrize(
    "settings",
    [
        {
            "TRACKER_REDIS__URL": f"redis+sentinel://me:{STORE}@127.0.0.1:9/main/0",
            "TRACKER_REDIS__SENTINEL_PASSWORD": SENTINEL,
        },
        *(
            pytest.param(each, marks=pytest.mark.long)
            for each in (
                {"TRACKER_REDIS__URL": f"redis://me:{STORE}@127.0.0.1:9/0"},
                {"TRACKER_REDIS__URL": f"redis://me:{STORE}@127.0.0.1:port/0"},
                {"TRACKER_STATHAT__EZKEY": STATHAT, "TRACKER_REDIS__URL": f"nonsense://me:{STORE}@h"},
                {"TRACKER_SCORING__UPSTREAMS": f"http://h/{UPSTREAM}/announce,ftp://me:{STORE}@h/{UPSTREAM}"},
            )
        ),
    ],
)
def test_a_failed_start_prints_no_secret(tmp_path: Path, settings: dict[str, str]) -> None:
    verbose = {"TRACKER_LOG__LEVEL": "debug", **trackers.ANY_PORTS, **settings}
    serve = ("serve", "--fail-fast")
    for words in (serve, ("settings",), ("doctor",)) if SENTINEL in str(settings) else (serve,):
        done = trackers.run(tmp_path, *words, **verbose)
        output = done.stdout + done.stderr
        assert output and (words == ("settings",) or done.returncode)
        assert not [secret for secret in (STORE, STATHAT, UPSTREAM, SENTINEL) if secret in output], output


def modes(directory: Path) -> dict[str, str]:
    """Returns path -> mode of the files that other users may access (one of the last six bits is set)."""
    found = [directory, *directory.rglob("*")]
    return {str(path): oct(path.lstat().st_mode) for path in found if path.lstat().st_mode & 0o077}


@pytest.mark.usefixtures("own_interpreter")
def test_files_are_for_their_owner_alone(start_tracker: StartTracker, tmp_path: Path) -> None:
    """Covers the data directory, sockets, locks, the append-only file and a backup, with the umask 0."""
    before = os.umask(0)
    try:
        tracker = start_tracker(TRACKER_ADMIN__LISTEN="127.0.0.1:0")
        home = tmp_path / "tracker"
        assert commands.run(home, "token", "create", "site").returncode == 0
        assert tracker.announce()[b"complete"] == 1
        assert (home / "data" / "valkey.sock").is_socket()
        assert modes(home / "data") == {}
        copied = trackers.run(home, "backup", str(tmp_path / "copy"))
        assert copied.returncode == 0, copied.stderr
        assert modes(tmp_path / "copy") == {}
        assert tracker.end() == 0
        assert modes(home / "data") == {}
    finally:
        os.umask(before)
