"""The PHP example of docs/changes.md, run by PHP: a tracker posts to it, and it refuses what others post."""

import re
import shutil
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from loadtest.servers import free_port
from tests.e2e.conftest import StartTracker
from tests.e2e.processes import running
from tests.e2e.requests import connect
from tests.waiting import until
from tests.workers.test_webhooks import DOCS, SECRET
from tracker.workers.webhooks import sign

TODO = "    // UPDATE history SET"
NOTE = "    file_put_contents(getenv('SEEN'), $change['change'] . ' ' . $change['peer_id'] . PHP_EOL, FILE_APPEND);\n"


@contextmanager
def site(directory: Path) -> Iterator[tuple[str, Path]]:
    """Yields the URL of the example, and the file in which it notes changes in place of the site's own statement."""
    if shutil.which("php") is None:
        pytest.skip("no php on this system")
    (example,) = re.findall(r"```php\n(.*?)```", DOCS.read_text(), re.DOTALL)
    todo = next(line for line in example.splitlines(keepends=True) if line.startswith(TODO))
    script, seen, port = directory / "hook.php", directory / "seen", free_port()
    script.write_text(example.replace(todo, NOTE))
    seen.touch()
    url = f"http://127.0.0.1:{port}"
    variables = f"WEBHOOK_SECRET={SECRET}", f"WEBHOOK_URL={url}/hook", f"SEEN={seen}"
    with running(("env", *variables, "php", "-S", f"127.0.0.1:{port}", str(script)), directory / "log") as process:

        def listens() -> bool:
            assert process.poll() is None, (directory / "log").read_text()
            try:
                connect(url).close()
            except OSError:
                return False
            return True

        until(listens)
        yield f"{url}/hook", seen


def post(url: str, body: bytes, timestamp: int, signature: str) -> int:
    """Returns the status."""
    address = urlsplit(url)
    connection = HTTPConnection(address.netloc, timeout=10)
    headers = {"X-Tracker-Timestamp": str(timestamp), "X-Tracker-Signature": signature}
    with closing(connection):
        connection.request("POST", address.path, body, headers)
        return connection.getresponse().status


def test_the_example_gets_the_changes_of_a_tracker(start_tracker: StartTracker, tmp_path: Path) -> None:
    with site(tmp_path) as (url, seen):
        tracker = start_tracker(
            TRACKER_CHANGES__MAX_ENTRIES="1000",
            TRACKER_CHANGES__WEBHOOK_URLS=url,
            TRACKER_CHANGES__WEBHOOK_SECRET=SECRET,
        )
        for number, event in enumerate(("started", "stopped")):
            tracker.announce(peer_id="-TR4000-abcdefghijkl", event=event)
            until(lambda: len(seen.read_text().splitlines()) > number)  # noqa: B023  # it runs within the turn
        peer_id = b"-TR4000-abcdefghijkl".hex()
        assert seen.read_text() == f"joined {peer_id}\nstopped {peer_id}\n"
        assert tracker.end() == 0


def test_the_example_refuses_what_the_tracker_did_not_sign(tmp_path: Path) -> None:
    body = b'{"changes": [{"change": "joined", "peer_id": "00"}]}'
    now = int(time.time())  # PHP compares with the real time
    with site(tmp_path) as (url, seen):
        for key, age, sent in (("another", 0, body), (SECRET, 400, body), (SECRET, 0, body + b" ")):
            assert post(url, sent, now - age, sign(key, now - age, url, body)) == 403
        assert post(url, body, now, sign(SECRET, now, f"{url}/of-another-site", body)) == 403
        assert post(url, body, now, "") == 403
        assert seen.read_text() == ""
        assert post(url, body, now, sign(SECRET, now, url, body)) == 204
        assert seen.read_text() == "joined 00\n"
