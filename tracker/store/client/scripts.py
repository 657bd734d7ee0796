"""Loads the Lua scripts in lua/ and calls them by name.

Each script is a file. ``--@ include FILE`` includes a fragment that several scripts share, unless the script has it
already; fragments include those that they need. An indented one is inside a function, and known only there. The only
key of every script is the key prefix, so on a cluster the prefix of a shard decides the slot. If a
server has lost its scripts (restart, SCRIPT FLUSH, failover), it replies NOSCRIPT and has executed nothing: the script
is loaded and called again. If it is lost again at once, the call contains the script itself. The announce script is
loaded as a library of Redis functions, where the server allows that.
"""

import hashlib
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from redis.exceptions import NoPermissionError, NoScriptError, OutOfMemoryError, ResponseError

from tracker.store.client.connection import Connection
from tracker.store.client.server import is_missing_function

_INCLUDE = re.compile(r"( *)--@ include (\S+)")
_LUA = resources.files("tracker.store") / "lua"
LIBRARIES = "swarmkeeper_"
"""The names of all libraries of functions begin with it."""
Call = Callable[..., Awaitable[Any]]


@cache
def source(name: str, *, allows_oom: bool = False) -> str:
    """The text of script ``name``, with its fragments. ``allows_oom``: marked to run also when the server is out of
    memory."""
    text = "".join(f"{line}\n" for _, _, line in lines_of(_files()[name]))
    return "#!lua flags=allow-oom\n" + text.removeprefix("#!lua\n") if allows_oom else text


@cache
def _texts() -> dict[str, str]:
    """The text of each file, by its path below lua/. All are read at once: an upgrade may replace them under a running
    tracker, which must not call a script of another version."""
    folders = [folder for folder in _LUA.iterdir() if folder.is_dir()]
    return {f"{folder.name}/{file.name}": file.read_text("utf-8") for folder in folders for file in folder.iterdir()}


@cache
def _files() -> dict[str, str]:
    """The paths of scripts and fragments, by name. Names are unique over all folders."""
    return {path.partition("/")[2].removesuffix(".lua"): path for path in _texts()}


def lines_of(file: str, included: set[str] | None = None) -> Iterator[tuple[str, int, str]]:
    """The lines of a script with its fragments, each with the file and line number that it comes from."""
    included = set() if included is None else included
    for number, line in enumerate(_texts()[file].splitlines(), 1):
        if not (match := _INCLUDE.fullmatch(line)):
            yield file, number, line
        elif match[2] not in included:
            known = {*included} if match[1] else included
            known.add(match[2])
            yield from lines_of(match[2], known)


class Library(NamedTuple):
    """A library of Redis functions: one script, also to be run when the server is out of memory."""

    name: str
    version: str
    """A part of all its names, so that trackers of different versions do not replace each other's."""
    text: str


@cache
def announce_library() -> Library:
    """The script as functions. Its text runs at the first call: a library may call nothing while it is loaded."""
    body, tail = source("announce").removeprefix("#!lua\n"), "return announce(KEYS, ARGV)\n"
    version = hashlib.sha1(body.encode(), usedforsecurity=False).hexdigest()[:12]
    name = f"{LIBRARIES}announce_{version}"
    return Library(
        name,
        version,
        f"#!lua name={name}\n"
        "local announce\n"
        "local function load()\n"
        f"{body.removesuffix(tail)}return announce\n"
        "end\n"
        "local function run(keys, arguments)\n"
        "  announce = announce or load()\n"
        "  return announce(keys, arguments)\n"
        "end\n"
        f"redis.register_function('announce_{version}', run)\n"
        f"redis.register_function{{function_name = 'announce_when_full_{version}', callback = run, "
        "flags = {'allow-oom'}}\n",
    )


_DIRECT = ("announce", "announce_when_full", "register", "scrape", "reap", "due")
"""Scripts that use the pipe: peers wait for them, or they are called by the thousand when many peers time out."""
_FUNCTIONS = ("announce", "announce_when_full")


@cache
def _sha_of(text: str) -> str:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


class Script:
    def __init__(self, call: Call, prefix: str, text: str) -> None:
        self._call = call
        self.head: tuple[str | int, ...] = ("EVALSHA", _sha_of(text), 1, prefix)
        """The command that runs it, up to its arguments. It may change: read it for each call."""
        self.load: tuple[str, ...] = ("SCRIPT", "LOAD", text)
        """What must be sent first when the server does not have the script."""
        self._whole = ("EVAL", text, 1, prefix)

    async def __call__(self, argv: Sequence[str | bytes | int | float]) -> Any:
        """Runs the script; raises StoreUnavailable, or redis.exceptions.ResponseError when the server refuses it."""
        try:
            return await self._call(*self.head, *argv)
        except ResponseError as error:
            if not self.is_missing(error):
                raise
            return await self.load_and_run(argv)

    def is_missing(self, error: Exception) -> bool:
        """Whether the server does not have the script: then it ran nothing, and ``load_and_run`` helps."""
        return isinstance(error, NoScriptError)

    async def load_and_run(self, argv: Sequence[str | bytes | int | float]) -> Any:
        """The same, for a server that does not have the script."""
        await self._call(*self.load)
        try:
            return await self._call(*self.head, *argv)
        except NoScriptError:  # lost again: a failover, or repeated SCRIPT FLUSH
            return await self._call(*self._whole, *argv)


class Function(Script):
    """The announce script, which the server keeps as a function, so that its Lua functions are not created for each
    call. On a server that does not allow functions it is a script as any other."""

    def __init__(self, call: Call, prefix: str, name: str) -> None:
        text, library = source("announce", allows_oom=name != "announce"), announce_library()
        super().__init__(call, prefix, text)
        self._script = Script(call, prefix, text)
        self.head = ("FCALL", f"{name}_{library.version}", 1, prefix)
        self.load = ("FUNCTION", "LOAD", "REPLACE", library.text)

    def is_missing(self, error: Exception) -> bool:
        return super().is_missing(error) or is_missing_function(error) or self._is_disallowed(error)

    @staticmethod
    def _is_disallowed(error: Exception) -> bool:
        """Whether the server refuses FCALL or FUNCTION, to this user or to all."""
        text = str(error).lower()
        refused = isinstance(error, NoPermissionError) or text.startswith("unknown command")
        return refused and ("'fcall" in text or "'function" in text)

    async def load_and_run(self, argv: Sequence[str | bytes | int | float]) -> Any:
        if self.head[0] == "FCALL":
            loaded = False
            try:
                await self._call(*self.load)
                loaded = True
                return await self._call(*self.head, *argv)
            except ResponseError as error:
                if self._is_disallowed(error):
                    self.head, self.load = self._script.head, self._script.load
                # A full server loads scripts, but no library; and functions may be lost again at once.
                elif not (is_missing_function(error) or (not loaded and isinstance(error, OutOfMemoryError))):
                    raise
        return await self._script(argv)


class Scripts:
    """All scripts by name, each made when it is first used: ``scripts.heartbeat`` is lua/swarms/heartbeat.lua."""

    def __init__(self, connection: Connection, prefix: str) -> None:
        self._connection = connection
        self._prefix = prefix

    def __getattr__(self, name: str) -> Script:
        if name not in _FUNCTIONS and name not in _files():
            raise AttributeError(name)
        call = self._connection.direct if name in _DIRECT else self._connection.command
        made = Function(call, self._prefix, name) if name in _FUNCTIONS else Script(call, self._prefix, source(name))
        setattr(self, name, made)
        return made
