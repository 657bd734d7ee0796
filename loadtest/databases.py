"""MariaDB and PostgreSQL of the system, started in a directory of their own, on a unix socket only."""

import itertools
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from loadtest.servers import guard

_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin"
MARIADB = shutil.which("mariadbd", path=_PATH)
_POSTGRES = [*Path("/usr/lib/postgresql").glob("*/bin"), Path("/usr/local/bin")]
POSTGRES = next((path for path in _POSTGRES if (path / "initdb").exists()), None)
START_SECONDS = 60.0
_UNPRIVILEGED = "nobody"
"""PostgreSQL does not run as root."""


@dataclass
class Database:
    """A server, MariaDB unless a subclass says otherwise."""

    directory: Path
    process: "subprocess.Popen[bytes] | None" = field(default=None, repr=False)

    name = "mariadb"

    def url(self, database: str, user: str = "root", password: str = "") -> str:
        who = f"{user}:{password}" if password else user
        return f"mysql://{who}@localhost/{database}?unix_socket={self.socket_path}"

    @property
    def socket_path(self) -> Path:
        return self.directory / "m.sock"

    @property
    def pid(self) -> int:
        return self.process.pid if self.process is not None else 0

    def start(self) -> "Database":
        if not (self.directory / "data").exists():
            self._make()
        with (self.directory / "log").open("ab") as log:
            command = [*self._guard(), *self._command()]
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        until = time.monotonic() + START_SECONDS
        while not self._is_ready():
            assert time.monotonic() < until, self.log
            time.sleep(0.05)
        return self

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(30)
            self.process = None

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(30)
            self.process = None

    def sql(self, *statements: str, database: str = "") -> list[list[str]]:
        """Runs statements, and returns the rows of their results."""
        done = subprocess.run(
            self.client(database), input=";\n".join(statements), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return [line.split("\t") for line in done.stdout.splitlines()]

    def _is_ready(self) -> bool:
        assert self.process is not None and self.process.poll() is None, self.log
        asked = subprocess.run(self.client(""), input=b"SELECT 1", capture_output=True, check=False)
        return asked.returncode == 0

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text("utf-8", "replace")

    def _guard(self) -> Sequence[str]:
        """Words before the command, so that the server dies with the test run."""
        return guard()

    def _make(self) -> None:
        data = self.directory / "data"
        subprocess.run(
            [
                "mariadb-install-db",
                "--no-defaults",
                f"--datadir={data}",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                f"--user={_user()}",
                "--skip-name-resolve",
            ],
            check=True,
            capture_output=True,
        )

    def _command(self) -> Sequence[str]:
        assert MARIADB
        return [
            MARIADB,
            "--no-defaults",
            f"--datadir={self.directory / 'data'}",
            f"--socket={self.socket_path}",
            f"--pid-file={self.directory / 'pid'}",
            "--skip-networking",
            f"--user={_user()}",
            "--innodb-buffer-pool-size=32M",
            "--innodb-log-file-size=16M",
            "--innodb-flush-log-at-trx-commit=2",
            "--innodb-doublewrite=0",
            "--innodb-lock-wait-timeout=2",
            "--sql-mode=STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION",
        ]

    def client(self, database: str) -> Sequence[str]:
        name = [database] if database else []
        return ["mariadb", "--no-defaults", f"--socket={self.socket_path}", "-uroot", "-N", "-B", *name]


class PostgreSQL(Database):
    name = "postgresql"

    def url(self, database: str, user: str = "root", password: str = "") -> str:
        who = f"{user}:{password}" if password else user
        return f"postgresql://{who}@/{database}?host={self.directory}"

    def _guard(self) -> Sequence[str]:
        if os.geteuid():
            return guard()
        return ["setpriv", f"--reuid={_UNPRIVILEGED}", "--clear-groups", "--pdeathsig", "KILL"]

    def _make(self) -> None:
        assert POSTGRES
        if os.geteuid() == 0:
            shutil.chown(self.directory, _UNPRIVILEGED)
        subprocess.run(
            [POSTGRES / "initdb", "-D", self.directory / "data", "-U", "root", "-A", "trust", "-N"],
            check=True,
            capture_output=True,
            **_as_unprivileged(),  # type: ignore[call-overload]
        )

    def _command(self) -> Sequence[str]:
        assert POSTGRES
        return [
            str(POSTGRES / "postgres"),
            *("-D", str(self.directory / "data"), "-k", str(self.directory), "-h", ""),
            *("-c", "fsync=off"),
        ]

    def client(self, database: str) -> Sequence[str]:
        assert POSTGRES
        name = database or "postgres"
        options = ["-v", "ON_ERROR_STOP=1", "-qAt", "-F", "\t"]
        return [str(POSTGRES / "psql"), "-h", str(self.directory), "-U", "root", *options, name]


def _user() -> str:
    return "root" if os.geteuid() == 0 else os.environ.get("USER", "")


def _as_unprivileged() -> dict[str, object]:
    return {"user": _UNPRIVILEGED, "cwd": "/"} if os.geteuid() == 0 else {}


@dataclass
class Site:
    """One database of a server."""

    server: Database
    name: str

    @property
    def url(self) -> str:
        return self.server.url(self.name)

    def sql(self, *statements: str) -> list[list[str]]:
        return self.server.sql(*statements, database=self.name)

    def number(self, query: str) -> int:
        """The one number that a query has as its result."""
        ((found,),) = self.sql(query)
        return int(found)


_numbers = itertools.count(1)


@contextmanager
def site_on(server: Database, tables: Sequence[str]) -> Iterator[Site]:
    """A new database with these tables, which is dropped afterwards."""
    site = Site(server, f"site{next(_numbers)}")
    server.sql(f"CREATE DATABASE {site.name}")
    site.sql(*tables)
    yield site
    if server.process is not None:
        server.sql(f"DROP DATABASE {site.name}")
