"""Sends single requests to any kind of listener, each on a new socket, and decodes the replies."""

import socket
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote_from_bytes, urlsplit

from bencodepy import decode as bdecode

SECONDS = 15.0
Reply = dict[bytes, Any]


def connect(address: str, source: str = "") -> socket.socket:
    """``address`` is ``http://host:port`` or ``unix:/path``; ``source`` is the client's own address."""
    if address.startswith("unix:"):
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(SECONDS)
        client.connect(address.removeprefix("unix:"))
        return client
    parts = urlsplit(address)
    assert parts.hostname and parts.port
    return socket.create_connection(
        (parts.hostname, parts.port), SECONDS, source_address=(source, 0) if source else None
    )


def get(
    address: str,
    path: str,
    *,
    headers: Mapping[str, str] | None = None,
    preface: bytes = b"",
    half_close: bool = False,
    source: str = "",
) -> Reply:
    """Sends a GET and returns the decoded reply. ``preface`` is sent first (a PROXY header). With ``half_close`` the
    client ends its side after the request."""
    lines = [f"GET {path} HTTP/1.1", "Host: tracker", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    with connect(address, source) as client:
        client.sendall(preface + "\r\n".join([*lines, "", ""]).encode())
        if half_close:
            client.shutdown(socket.SHUT_WR)
        return read_reply(client)


def read_reply(client: socket.socket) -> Reply:
    """Reads a reply up to the end of the connection and decodes its body. The status must be 200. Raises
    ConnectionError if the connection closes without a reply."""
    received = b""
    while data := client.recv(65536):
        received += data
    if not received:
        raise ConnectionError("no reply")
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith((b"HTTP/1.1 200 ", b"HTTP/1.0 200 ")), received
    reply: Reply = bdecode(body)
    return reply


def announce_path(passkey: str = "", **changes: object) -> str:
    """Returns path and query of an announce. Bytes in ``changes`` are percent-encoded, other values are not."""
    query: dict[str, object] = {
        "info_hash": b"\x01" * 20,
        "peer_id": b"-TR4000-abcdefghijkl",
        "port": 6881,
        "uploaded": 0,
        "downloaded": 0,
        "left": 0,
        "event": "started",
        **changes,
    }
    pairs = (f"{k}={quote_from_bytes(v, safe='') if isinstance(v, bytes) else v}" for k, v in query.items())
    return f"{'/' + passkey if passkey else ''}/announce?{'&'.join(pairs)}"


def scrape(address: str, info_hash: bytes, passkey: str = "") -> tuple[int, int, int]:
    """(seeders, leechers, completions) of one torrent."""
    path = f"{'/' + passkey if passkey else ''}/scrape?info_hash={quote_from_bytes(info_hash, safe='')}"
    reply = get(address, path)
    assert list(reply[b"files"]) == [info_hash], reply
    file = reply[b"files"][info_hash]
    return file[b"complete"], file[b"incomplete"], file[b"downloaded"]
