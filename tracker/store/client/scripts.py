"""Loads the Lua scripts in lua/ and calls them by name.

Each script is a file. ``--@ include FILE`` includes a fragment that several scripts share; fragments may include
others. The only key of every script is the key prefix, so on a cluster the prefix of a shard decides the slot. If a
server has lost its scripts (restart, SCRIPT FLUSH, failover), it replies NOSCRIPT and has executed nothing: the script
is loaded and called again. If it is lost again at once, the call contains the script itself. The announce script is
loaded as a library of Redis functions, where the server allows that.
"""

import hashlib
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, NamedTuple, Protocol

from redis.exceptions import NoPermissionError, NoScriptError, OutOfMemoryError, ResponseError

from tracker.store.client.reply_errors import is_missing_function

_INCLUDE = re.compile(r"^--@ include (\S+)\n", re.MULTILINE)
_LUA = resources.files("tracker.store") / "lua"
_ALLOW_OOM = "#!lua flags=allow-oom\n"
LIBRARIES = "swarmkeeper_"
"""The names of all libraries of functions begin with it."""


Call = Callable[..., Awaitable[Any]]


class Commands(Protocol):
    async def command(self, *args: str | bytes | int | float) -> Any: ...

    async def direct(self, *args: str | bytes | int | float) -> Any: ...


@cache
def source(name: str) -> str:
    """The text of script ``name``, with its fragments."""
    return _assembled(_files()[name])


@cache
def _files() -> dict[str, Traversable]:
    """The files of scripts and fragments, by name. Names are unique over all folders."""
    folders = [folder for folder in _LUA.iterdir() if folder.is_dir()]
    return {file.name.removesuffix(".lua"): file for folder in folders for file in folder.iterdir()}


def _assembled(file: Traversable) -> str:
    return _INCLUDE.sub(lambda match: _assembled(_LUA / match[1]), file.read_text(encoding="utf-8"))


@cache
def source_allowing_oom(name: str) -> str:
    """The same script, marked to run also when the server is out of memory."""
    return _ALLOW_OOM + source(name).removeprefix("#!lua\n")


def library_name(script: str = "announce") -> str:
    """The name of the library that this version loads."""
    return f"{LIBRARIES}{script}_{_library(script).version}"


class Library(NamedTuple):
    """A library of Redis functions: one script, also to be run when the server is out of memory."""

    version: str
    """A part of all its names, so that trackers of different versions do not replace each other's."""
    text: str


@cache
def _library(name: str) -> Library:
    """Script ``name`` as functions. Its text runs at the first call: a library may call nothing while it is loaded."""
    body, tail = source(name).removeprefix("#!lua\n"), f"return {name}(KEYS, ARGV)\n"
    version = hashlib.sha1(body.encode(), usedforsecurity=False).hexdigest()[:12]
    return Library(
        version,
        f"#!lua name={LIBRARIES}{name}_{version}\n"
        f"local {name}\n"
        "local function load()\n"
        f"{body.removesuffix(tail)}return {name}\n"
        "end\n"
        "local function run(keys, arguments)\n"
        f"  {name} = {name} or load()\n"
        f"  return {name}(keys, arguments)\n"
        "end\n"
        f"redis.register_function('{name}_{version}', run)\n"
        f"redis.register_function{{function_name = '{name}_when_full_{version}', callback = run, "
        "flags = {'allow-oom'}}\n",
    )


_DIRECT = ("announce", "announce_when_full", "register", "scrape", "reap", "due")
"""Scripts that use the pipe: peers wait for them, or they are called by the thousand when many peers time out."""


_FUNCTIONS = ("announce", "announce_when_full")


class Script:
    """One script on one server."""

    def __init__(self, call: Call, prefix: str, text: str, sha: str = "") -> None:
        self._call = call
        self._prefix = prefix
        self.sha = sha or hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
        self.head: tuple[str | int, ...] = ("EVALSHA", self.sha, 1, prefix)
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
    """A script that the server keeps as a function, so that its Lua functions are not created for each call. On a
    server that does not allow functions it is a script as any other."""

    def __init__(self, call: Call, prefix: str, name: str, sha: str = "") -> None:
        script = name.removesuffix("_when_full")
        text = source(script) if script == name else source_allowing_oom(script)
        super().__init__(call, prefix, text, sha)
        self._script = Script(call, prefix, text, self.sha)
        library = _library(script)
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
    """All scripts, by name: each is the file lua/NAME.lua. ``hashed``: the scripts of another prefix, so that their
    texts are not hashed again."""

    announce: Script
    announce_when_full: Script
    register: Script
    count_announces: Script
    scrape: Script
    reap: Script
    due: Script
    sweep: Script
    pending_removals: Script
    begin_removal: Script
    end_removal: Script
    heartbeat: Script
    shorten_timeouts: Script
    totals: Script
    add: Script
    edit: Script
    link: Script
    unlink: Script
    deny: Script
    allow: Script
    index: Script
    raise_torrent_id: Script
    search: Script
    list_torrents: Script
    read_torrents: Script
    rank_torrents: Script
    count_before: Script
    reindex: Script
    cleanup: Script
    dump_keys: Script
    restore_keys: Script
    remove: Script
    add_user: Script
    rotate_user: Script
    save_users: Script
    edit_user: Script
    save_group: Script
    set_rule: Script
    rank_users: Script
    list_users: Script
    read_users: Script
    delete_user: Script
    copy_users: Script
    note_users: Script
    sum_users: Script
    adopt: Script
    name_users: Script
    forgive: Script
    rank_hit_and_runs: Script
    drop_hit_and_runs: Script
    decide_hit_and_runs: Script
    freeleech: Script
    user_peers: Script
    hold_lease: Script
    hold_webhook: Script
    record_updates: Script
    save_history: Script
    remember_peers: Script
    note_connectable: Script
    software: Script
    count_hits: Script
    count: Script
    count_unique: Script
    estimate_unique: Script
    forget_markers: Script
    clean: Script
    collect: Script
    acknowledge: Script
    take: Script
    score: Script
    reset_score: Script
    enqueue: Script
    enqueue_slot: Script
    claim: Script
    extend: Script
    finish: Script
    save_cursor: Script
    retry: Script
    purge: Script
    abandon: Script
    add_token: Script
    sign_in: Script
    session: Script
    audit: Script
    work_save: Script
    work_add: Script
    work_claim: Script
    work_done: Script
    work_rank: Script
    work_release: Script
    work_block: Script
    work_policy: Script
    work_note: Script
    work_extend: Script
    work_lapse: Script
    work_purge: Script
    work_trim: Script
    work_sizes: Script
    work_delete: Script
    work_verify: Script
    work_facts: Script
    work_probe: Script
    dht_swarm: Script
    dht_page: Script
    dht_claim: Script
    dht_found: Script
    dht_give: Script

    def __init__(self, commands: Commands, prefix: str, hashed: "Scripts | None" = None) -> None:
        for name in Scripts.__annotations__:
            call = commands.direct if name in _DIRECT else commands.command
            sha = getattr(hashed, name).sha if hashed else ""
            if name in _FUNCTIONS:
                setattr(self, name, Function(call, prefix, name, sha))
            else:
                setattr(self, name, Script(call, prefix, source(name), sha))
