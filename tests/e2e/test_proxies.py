"""The tracker behind proxies: a unix socket, the PROXY protocol, and real nginx and HAProxy if installed."""

import asyncio
import re
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from loadtest.servers import ROOT, free_port, make_certificate
from tests import commands
from tests.e2e.conftest import StartTracker, addresses
from tests.e2e.processes import running
from tests.e2e.requests import announce_path, connect, get, scrape
from tests.frontends.websocket.harness import Browser, peer
from tests.waiting import until

pytestmark = pytest.mark.slow
CLIENT = "127.0.0.2"
"""The client's address. The proxies are on 127.0.0.1."""
needs_second_loopback = pytest.mark.skipif(sys.platform != "linux", reason="needs several loopback addresses")
BEHIND = "203.0.113.7"


def external(reply: dict[bytes, Any]) -> str:
    """The address that the tracker saw (BEP 24)."""
    return socket.inet_ntop(
        socket.AF_INET if len(reply[b"external ip"]) == 4 else socket.AF_INET6, reply[b"external ip"]
    )


def test_a_request_over_a_unix_socket_must_name_the_client(start_tracker: StartTracker, short_directory: Path) -> None:
    """T25: a connection to a unix socket is a proxy's. Without X-Forwarded-For its requests are refused."""
    tracker = start_tracker(
        TRACKER_HTTP__LISTEN=f"unix:{short_directory}/http", TRACKER_HTTP__TRUSTED_PROXIES="192.0.2.0/24"
    )
    [address] = addresses(tracker)
    reply = get(address, announce_path(), headers={"X-Forwarded-For": BEHIND})
    assert (reply[b"complete"], external(reply)) == (1, BEHIND)
    assert b"X-Forwarded-For" in get(address, announce_path())[b"failure reason"]
    assert tracker.end() == 0
    assert not (short_directory / "http").exists()


def preface(version: int) -> bytes:
    """Returns a PROXY header with BEHIND as the client's address."""
    if version == 1:
        return b"PROXY TCP4 %b 127.0.0.1 40000 6969\r\n" % BEHIND.encode()
    ends = socket.inet_aton(BEHIND) + socket.inet_aton("127.0.0.1") + (40000).to_bytes(2, "big") * 2
    return b"\r\n\r\n\0\r\nQUIT\n\x21\x11" + len(ends).to_bytes(2, "big") + ends


PROXY_PROTOCOL = {"TRACKER_HTTP__PROXY_PROTOCOL": "true", "TRACKER_HTTP__TRUSTED_PROXIES": "127.0.0.1"}


@needs_second_loopback
def test_a_proxy_header_names_the_client(start_tracker: StartTracker) -> None:
    """T25: a trusted proxy must send the header. From other addresses it is a malformed request."""
    tracker = start_tracker(**PROXY_PROTOCOL)
    for version in (1, 2):
        assert external(get(tracker.url, announce_path(), preface=preface(version))) == BEHIND
    with pytest.raises(ConnectionError):
        get(tracker.url, announce_path())
    assert b"failure reason" in get(tracker.url, announce_path(), preface=preface(1), source=CLIENT)
    assert external(get(tracker.url, announce_path(), source=CLIENT)) == CLIENT


@contextmanager
def proxy(arguments: Sequence[str], directory: Path, port: int) -> Iterator[str]:
    """Runs a proxy as a child process, and yields its address when it listens."""
    log, address = directory / "log", f"http://127.0.0.1:{port}"
    with running(arguments, log) as process:

        def listens() -> bool:
            assert process.poll() is None, log.read_text()
            try:
                connect(address).close()
            except OSError:
                return False
            return True

        until(listens)
        yield address


def program(name: str) -> str:
    """Finds a program, also in folders outside the PATH of normal users. Skips the test if it is missing."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if found is None:
        pytest.skip(f"no {name} on this system")
    return found


NGINX = """
daemon off; master_process off; pid {directory}/pid; error_log stderr;
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path {directory}/body; proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi; uwsgi_temp_path {directory}/uwsgi; scgi_temp_path {directory}/scgi;
    upstream tracker {{ server {upstream}; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://tracker;
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
        }}
    }}
}}
"""


@needs_second_loopback
@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_nginx_passes_on_the_clients_address(start_tracker: StartTracker, short_directory: Path, kind: str) -> None:
    """T25: a forged X-Forwarded-For of the client is ignored, and binary hashes arrive unchanged."""
    nginx, directory, port = program("nginx"), short_directory, free_port()
    listen = "127.0.0.1:0" if kind == "tcp" else f"unix:{directory}/http"
    tracker = start_tracker(TRACKER_HTTP__LISTEN=listen, TRACKER_HTTP__TRUSTED_PROXIES="127.0.0.1")
    upstream = addresses(tracker)[0].removeprefix("http://")
    (directory / "conf").write_text(NGINX.format(directory=directory, port=port, upstream=upstream))
    info_hash = bytes(range(236, 256))
    with proxy([nginx, "-p", str(directory), "-c", str(directory / "conf")], directory, port) as url:
        forged = {"X-Forwarded-For": BEHIND}
        reply = get(url, announce_path(info_hash=info_hash), headers=forged, source=CLIENT)
        assert (external(reply), reply[b"complete"]) == (CLIENT, 1)
        assert scrape(url, info_hash) == (1, 0, 0)


def documented(page: str, language: str, **replaced: str) -> str:
    """The only configuration of a page, with what it says replaced: ``{before: after}``."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    (block,) = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
    for before, after in replaced.items():
        assert before in block
        block = block.replace(before, after)
    return str(block)


def documented_nginx(directory: Path, page: str, **replaced: str) -> str:
    block = documented(page, "nginx", **replaced)
    paths = "".join(f"{name}_temp_path {directory}/{name}; " for name in TEMPORARY)
    start = f"daemon off; master_process off; pid {directory}/pid; error_log stderr; events {{}}"
    return f"{start} http {{ {paths} {block} }}"


TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


@needs_second_loopback
@pytest.mark.parametrize("named", [True, False], ids=["with a server_name", "without"])
def test_clients_that_send_no_host_are_served_behind_nginx(
    start_tracker: StartTracker, short_directory: Path, named: bool
) -> None:
    """ctorrent sends HTTP/1.0 without Host. Covers plain announces, and requests that aiohttp answers."""
    nginx, directory, port = program("nginx"), short_directory, free_port()
    tracker = start_tracker(TRACKER_HTTP__TRUSTED_PROXIES="127.0.0.1")
    upstream = addresses(tracker)[0].removeprefix("http://")
    replaced = {
        "listen 80;": f"listen 127.0.0.1:{port};",
        "listen [::]:80;": "",
        "server 127.0.0.1:6969;": f"server {upstream};",
    }
    text = documented_nginx(directory, "proxies.md", **replaced)
    assert "server_name tracker.example;" in text
    (directory / "conf").write_text(text if named else text.replace("server_name tracker.example;", ""))
    with proxy([nginx, "-p", str(directory), "-c", str(directory / "conf")], directory, port) as url:
        for path in (announce_path(), announce_path().replace("nn", "n%6E"), "/health"):
            with connect(url, CLIENT) as client:
                client.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode("latin-1"))
                answer = b"".join(iter(lambda: client.recv(65536), b""))
            assert b" 200 OK" in answer and b"failure" not in answer
            assert (b"5:peers" in answer) == path.startswith("/an")


def test_the_dashboard_behind_nginx_with_tls_as_documented(start_tracker: StartTracker, short_directory: Path) -> None:
    """Live updates arrive at once, a token is bound to the client's address, and answers say that TLS is used."""
    nginx, directory, port = program("nginx"), short_directory, free_port()
    certificate = make_certificate(directory)
    tracker = start_tracker(TRACKER_ADMIN__URL=f"https://127.0.0.1:{port}", TRACKER_HTTP__TRUSTED_PROXIES="127.0.0.1")
    home = tracker.log_file.parent
    (listens,) = re.findall(r"^ +(http://\S+)/$", tracker.banner, re.MULTILINE)
    tokens = [commands.run(home, "token", "create", each, "--address", each).stdout for each in (CLIENT, BEHIND)]
    tls = f"ssl_certificate {certificate}; ssl_certificate_key {directory}/key.pem;"
    replaced = {"listen 443 ssl;": f"listen 127.0.0.1:{port} ssl; {tls}", "http://127.0.0.1:6970;": f"{listens};"}
    (directory / "conf").write_text(documented_nginx(directory, "admin.md", **replaced))
    context = ssl.create_default_context(cafile=str(certificate))
    with proxy([nginx, "-p", str(directory), "-c", str(directory / "conf")], directory, port):
        for text, status in zip(tokens, (200, 401), strict=True):
            (token,) = re.findall(r"swk_\S+", text)
            connection = HTTPSConnection("127.0.0.1", port, timeout=15, source_address=(CLIENT, 0), context=context)
            with closing(connection):
                forged = {"Authorization": f"Bearer {token}", "X-Forwarded-For": BEHIND}
                connection.request("GET", "/live", headers=forged)
                answer = connection.getresponse()
                assert answer.status == status
                assert answer.headers["Strict-Transport-Security"]
                assert answer.readline().startswith(b"retry: " if status == 200 else b"")


def test_haproxy_sends_clients_to_the_tracker_that_is_left_as_documented(
    start_tracker: StartTracker, redis_url: str, prefix: str, short_directory: Path
) -> None:
    haproxy, directory, port = program("haproxy"), short_directory, free_port()
    store = {"TRACKER_REDIS__URL": redis_url, "TRACKER_REDIS__PREFIX": prefix}
    delay = {"TRACKER_HTTP__STOP_DELAY_SECONDS": "2"}
    both = [start_tracker(home, **store, **PROXY_PROTOCOL, **delay) for home in ("one", "two")]
    upstream = [tracker.url.removeprefix("http://") for tracker in both]
    replaced = {
        "bind :80": f"bind 127.0.0.1:{port}",
        "10.0.0.1:6969": upstream[0],
        "10.0.0.2:6969": upstream[1],
        "retries 3": "retries 3\n    timeout check 15s",  # a machine that is busy with other tests
    }
    (directory / "conf").write_text(documented("operations.md", "haproxy", **replaced))
    with proxy([haproxy, "-db", "-f", str(directory / "conf")], directory, port) as url:
        for tracker in both:
            assert external(get(url, announce_path(), source=CLIENT)) == CLIENT
            tracker.process.terminate()
            while tracker is both[0] and tracker.process.poll() is None:
                assert get(url, announce_path(), source=CLIENT)[b"complete"] == 1
        until(lambda: both[1].process.poll() == 0)


async def meet(url: str) -> None:
    """Two browsers behind a proxy; an offer of one reaches the other."""
    connector = aiohttp.TCPConnector(local_addr=(CLIENT, 0))
    async with aiohttp.ClientSession(connector=connector) as session:
        one, two = [Browser(await session.ws_connect(f"{url}/announce"), peer(number)) for number in range(2)]
        await one.announce(left=7)
        assert (await two.announce("a", left=7))["incomplete"] == 2
        assert (await one.receive())["offer"]["sdp"] == "v=0 a"


@needs_second_loopback
@pytest.mark.parametrize("passes", [True, False], ids=["as documented", "without the lines for them"])
def test_websockets_pass_nginx(start_tracker: StartTracker, short_directory: Path, passes: bool) -> None:
    nginx, directory, port = program("nginx"), short_directory, free_port()
    tracker = start_tracker(TRACKER_HTTP__TRUSTED_PROXIES="127.0.0.1")
    listening = {"listen 80;": f"listen 127.0.0.1:{port};", "listen [::]:80;": ""}
    replaced = {**listening, "127.0.0.1:6969;": f"{addresses(tracker)[0].removeprefix('http://')};"}
    if passes:
        before, _, lines = documented("webtorrent.md", "nginx").partition("\n\n")
        replaced |= {"upstream tracker": f"{before}\nupstream tracker", 'proxy_set_header Connection "";': lines}
    (directory / "conf").write_text(documented_nginx(directory, "proxies.md", **replaced))
    with proxy([nginx, "-p", str(directory), "-c", str(directory / "conf")], directory, port) as url:
        if passes:
            asyncio.run(meet(url))
        else:
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                asyncio.run(meet(url))
            assert refused.value.status == 403
        assert get(url, announce_path(), source=CLIENT)[b"complete"] == 1


HAPROXY = """
global
    stats socket {directory}/admin
defaults
    mode tcp
    timeout connect 5s
    timeout client 10s
    timeout server 10s
    timeout tunnel 2m
listen tracker
    bind 127.0.0.1:{port}
    server tracker {upstream} {send}
"""


@needs_second_loopback
@pytest.mark.parametrize("send", ["send-proxy", "send-proxy-v2"])
def test_haproxy_passes_on_the_clients_address(start_tracker: StartTracker, short_directory: Path, send: str) -> None:
    """T25: HAProxy's own PROXY protocol headers are accepted."""
    haproxy, directory, port = program("haproxy"), short_directory, free_port()
    tracker = start_tracker(**PROXY_PROTOCOL)
    upstream = tracker.url.removeprefix("http://")
    (directory / "conf").write_text(HAPROXY.format(directory=directory, port=port, upstream=upstream, send=send))
    with proxy([haproxy, "-db", "-f", str(directory / "conf")], directory, port) as url:
        assert external(get(url, announce_path(), source=CLIENT)) == CLIENT
        asyncio.run(meet(url))


HAPROXY_TLS = """
global
    stats socket {directory}/admin
    {more}
defaults
    mode {mode}
    timeout connect 5s
    timeout client 10s
    timeout server 10s
listen tracker
    bind 127.0.0.1:{port} ssl crt {directory}/pem
    server tracker {upstream} send-proxy-v2
"""


@pytest.mark.parametrize(
    ("mode", "more", "passes"),
    [("tcp", "", True), ("http", "tune.bufsize 65536", True), ("http", "", False)],
    ids=["tcp", "http with a larger buffer", "http"],
)
def test_haproxy_with_tls_passes_a_scrape_of_400_torrents_as_documented(
    start_tracker: StartTracker, short_directory: Path, mode: str, more: str, passes: bool
) -> None:
    haproxy, openssl, port = program("haproxy"), program("openssl"), free_port()
    upstream = start_tracker(**PROXY_PROTOCOL).url.removeprefix("http://")
    pem, conf = short_directory / "pem", short_directory / "conf"
    request = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    subprocess.run([openssl, *request, "-keyout", pem, "-out", pem.with_name("crt")], check=True, capture_output=True)
    pem.write_bytes(pem.read_bytes() + pem.with_name("crt").read_bytes())
    values = {"directory": short_directory, "port": port, "upstream": upstream}
    conf.write_text(HAPROXY_TLS.format(mode=mode, more=more, **values))
    hashes = [b"info_hash=" + (b"%%%02x%%%02x" % divmod(n, 256)) * 10 for n in range(400)]
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with proxy([haproxy, "-db", "-f", str(conf)], short_directory, port) as url:
        for count, expected in ((200, True), (220, passes), (400, passes)):
            with connect(url) as plain, context.wrap_socket(plain) as client:
                query = b"&".join(hashes[:count])
                client.sendall(b"GET /scrape?%b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % query)
                answer = b"".join(iter(lambda: client.recv(65536), b""))
            assert answer.startswith(b"HTTP/1.1 200 " if expected else b"HTTP/1.1 400 "), (count, answer[:80])
            assert (b"5:files" in answer) == expected
