"""A flood of unfinished anonymous bodies on the admin port of a whole tracker."""

import re
import socket
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest

from tests import commands
from tests.e2e.conftest import StartTracker
from tests.e2e.requests import connect

pytestmark = pytest.mark.slow
FLOOD = 520
"""More than the max number of connections."""


def answered(address: str, head: str, body: str = "") -> str:
    """The status line."""
    with connect(address) as client:
        client.sendall(f"{head}\r\nHost: {urlsplit(address).netloc}\r\nConnection: close\r\n".encode())
        if body:
            client.sendall(
                f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            )
            client.sendall(body.encode())
        else:
            client.sendall(b"\r\n")
        return client.recv(4096).split(b"\r\n")[0].decode()


@pytest.mark.parametrize(
    ("path", "lines"),
    [
        pytest.param("/sign-in", "", marks=pytest.mark.long),
        pytest.param("/sign-in", "Authorization: Bearer nonsense\r\n", marks=pytest.mark.long),
        ("/api/v1/torrents", "Authorization: Bearer nonsense\r\n"),
    ],
)
def test_operators_and_probes_are_served_during_a_flood_of_unfinished_bodies(
    start_tracker: StartTracker, path: str, lines: str
) -> None:
    tracker = start_tracker()
    found = re.search(r"admin +(http://[^/\s]+)", tracker.banner)
    assert found, tracker.banner
    admin = found[1]
    created = commands.run(tracker.log_file.parent, "token", "create", "operator")
    token = re.search(r"swk_\S+", created.stdout)
    assert token, created.stdout + created.stderr
    host = urlsplit(admin).netloc
    begun = f"POST {path} HTTP/1.1\r\nHost: {host}\r\n{lines}Content-Length: 999\r\n\r\ntoken="
    with ExitStack() as stack:
        for number in range(FLOOD):
            client: socket.socket = stack.enter_context(connect(admin))
            client.sendall(begun.encode())
            if number % 40 == 0:
                assert answered(admin, "GET /health HTTP/1.1").endswith("200 OK")
        assert answered(admin, "GET /health HTTP/1.1").endswith("200 OK")
        assert answered(admin, "GET /ready HTTP/1.1").endswith("200 OK")
        assert answered(admin, "POST /sign-in HTTP/1.1", f"token={token[0]}").endswith("303 See Other")
