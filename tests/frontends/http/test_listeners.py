"""Where the tracker listens, and what it says when it cannot."""

import asyncio
import contextlib
import errno
import os
import socket
import stat
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.frontends.conftest import Logs
from tests.frontends.harness import ANNOUNCE, RecordingTracker, connect, on_loops
from tracker.errors import StartupError
from tracker.frontends.http import serve_http
from tracker.listeners import BACKLOG, open_listeners
from tracker.settings import AdminSettings, AnnounceSettings, HttpSettings


@contextlib.asynccontextmanager
async def listening(*listen: str) -> AsyncIterator[tuple[str, ...]]:
    settings = HttpSettings(listen=listen)
    async with serve_http(RecordingTracker(), settings, AnnounceSettings(), max_scrape=1) as addresses:
        yield addresses


async def is_served(address: str) -> bool:
    async with connect(address) as client:
        return (await client.get("/")).status_line == "HTTP/1.1 200 OK"


async def refusal(*listen: str) -> str:
    """Why these cannot be listened on."""
    with pytest.raises(StartupError) as caught:
        async with listening(*listen):
            pass
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.fixture
def taken() -> Iterator[str]:
    """An address where somebody else listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@on_loops()
async def test_several_addresses_of_all_kinds(tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    async with listening("127.0.0.1:0", "[::1]:0", "localhost:0", f"unix:{path}") as addresses:
        assert addresses[0].startswith("127.0.0.1:")
        assert addresses[1].startswith("[::1]:")
        assert addresses[-1] == f"unix:{path}"
        assert not any(address.endswith(":0") for address in addresses)
        for address in addresses:
            assert await is_served(address)
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
    assert not path.exists()


@on_loops()
async def test_both_families_share_a_port() -> None:
    """The default, with a free port: :: takes IPv6 only, whatever the system's own default is."""
    async with listening("[::]:0") as (six,):
        port = six.rpartition(":")[2]
        async with listening(f"0.0.0.0:{port}") as (four,):
            assert (four, six) == (f"0.0.0.0:{port}", f"[::]:{port}")
            assert await is_served(f"127.0.0.1:{port}")
            assert await is_served(f"[::1]:{port}")


@on_loops("uvloop")
async def test_a_restart_finds_its_port_free() -> None:
    """Connections of the last run linger in TIME_WAIT."""
    async with listening("127.0.0.1:0") as (address,):
        client = connect(address)
        await (await client.__aenter__()).get(ANNOUNCE)
    async with listening(address) as again:
        assert again == (address,)
    await client.__aexit__(None, None, None)


@on_loops("uvloop")
async def test_a_port_in_use_is_one_clear_line(taken: str) -> None:
    assert await refusal(taken) == f"cannot listen on {taken}: it is in use by another process"


@on_loops("uvloop")
async def test_one_bad_address_opens_none(taken: str, tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    assert taken in await refusal(f"unix:{path}", "127.0.0.1:0", taken)
    assert not path.exists()


@pytest.mark.parametrize(
    "listen",
    [*("6969", "localhost", "localhost:", ":6969", "::1:6969", "[::1]", "a:b", "a:-1", "a:65536", "a:٣", "")],
)
def test_malformed_addresses_are_refused_with_the_settings(listen: str) -> None:
    """Before anything is opened or started."""
    for section in (HttpSettings, AdminSettings):
        with pytest.raises(ValidationError, match=r"write host:port, \[ipv6\]:port or unix:/path"):
            section(listen=(listen,))


@on_loops("uvloop")
async def test_addresses_of_others_are_refused() -> None:
    for listen in ("192.0.2.1:0", "[2001:db8::1]:0"):
        assert await refusal(listen) == f"cannot listen on {listen}: this machine has no such address"
    assert "host.invalid:1" in await refusal("host.invalid:1")
    assert "nothing" in await refusal()


@on_loops("uvloop")
@pytest.mark.parametrize("error", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
async def test_a_system_without_ipv6_goes_on_with_a_warning(
    error: int, monkeypatch: pytest.MonkeyPatch, logs: Logs
) -> None:
    """The socket class stands in for such a kernel."""

    class Socket(socket.socket):
        def bind(self, address: Any) -> None:
            if self.family == socket.AF_INET6:
                raise OSError(error, os.strerror(error))
            super().bind(address)

    monkeypatch.setattr(socket, "socket", Socket)
    opened = await open_listeners(["127.0.0.1:0", "[::]:0"])
    assert [listener.address.rpartition(":")[0] for listener in opened] == ["127.0.0.1"]
    opened[0].close()
    with pytest.raises(StartupError, match="name an address that works"):
        await open_listeners(["[::1]:0"])
    assert [line["listen"] for line in logs if line["log_level"] == "warning"] == ["[::]:0", "[::1]:0"]


@on_loops("uvloop")
async def test_stale_socket_files_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))
    async with listening(f"unix:{path}") as (address,):
        assert await is_served(address)
        assert "in use" in await refusal(f"unix:{path}")
        assert await is_served(address)


@on_loops("uvloop")
async def test_files_that_are_no_sockets_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("data")
    assert "not a socket" in await refusal(f"unix:{path}")
    assert path.read_text() == "data"
    assert "unix" in await refusal(f"unix:{tmp_path}/{'x' * 200}")
    assert "missing" in await refusal(f"unix:{tmp_path}/missing/http.sock")


@on_loops("uvloop")
async def test_a_socket_file_that_somebody_replaced_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    async with listening(f"unix:{path}"):
        path.unlink()
        path.write_text("not ours")
    assert path.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says")
async def test_a_queue_tells_its_length_and_its_limit() -> None:
    (listener,) = await open_listeners(["127.0.0.1:0"])
    most = min(BACKLOG, int(await asyncio.to_thread(Path("/proc/sys/net/core/somaxconn").read_text)))
    with contextlib.ExitStack() as stack:
        stack.callback(listener.close)
        assert listener.queue == (0, most)
        for _ in range(3):
            stack.enter_context(socket.create_connection(listener.socket.getsockname()))
        assert listener.queue == (3, most)
        listener.socket.accept()[0].close()
        assert listener.queue == (2, most)
