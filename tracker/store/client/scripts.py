"""Loads the Lua scripts in lua/ and calls them by name.

Each script is a file. ``--@ include FILE`` includes a fragment that several scripts share; fragments may include
others. The only key of every script is the key prefix, so on a cluster the prefix of a shard decides the slot. If a
server has lost its scripts (restart, SCRIPT FLUSH, failover), it replies NOSCRIPT and has executed nothing: the script
is loaded and called again. If it is lost again at once, the call contains the script itself.
"""

import hashlib
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, Protocol

from redis.exceptions import NoScriptError

_INCLUDE = re.compile(r"^--@ include (\S+)\n", re.MULTILINE)
_LUA = resources.files("tracker.store") / "lua"
_ALLOW_OOM = "#!lua flags=allow-oom\n"


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


_DIRECT = ("announce", "announce_when_full", "scrape", "reap", "due")
"""Scripts that use the pipe: peers wait for them, or they are called by the thousand when many peers time out."""


class Script:
    """One script on one server."""

    def __init__(self, call: Call, prefix: str, text: str, sha: str = "") -> None:
        self._call = call
        self.sha = sha or hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
        self.head = ("EVALSHA", self.sha, 1, prefix)
        """The command that runs it, up to its arguments. The reply NOSCRIPT means that ``load`` must be sent first."""
        self.load = ("SCRIPT", "LOAD", text)
        self._whole = ("EVAL", text, 1, prefix)

    async def __call__(self, argv: Sequence[str | bytes | int | float]) -> Any:
        """Runs the script; raises StoreUnavailable, or redis.exceptions.ResponseError when the server refuses it."""
        try:
            return await self._call(*self.head, *argv)
        except NoScriptError:
            return await self.load_and_run(argv)

    async def load_and_run(self, argv: Sequence[str | bytes | int | float]) -> Any:
        """The same, for a server that has just answered NOSCRIPT."""
        await self._call(*self.load)
        try:
            return await self._call(*self.head, *argv)
        except NoScriptError:  # lost again: a failover, or repeated SCRIPT FLUSH
            return await self._call(*self._whole, *argv)


class Scripts:
    """All scripts, by name: each is the file lua/NAME.lua. ``hashed``: the scripts of another prefix, so that their
    texts are not hashed again."""

    announce: Script
    announce_when_full: Script
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
    deny: Script
    allow: Script
    index: Script
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
    hold_webhook: Script
    note_connectable: Script
    software: Script
    count_hits: Script
    count: Script
    count_unique: Script
    estimate_unique: Script
    rename_unique: Script
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
    named_lease: Script

    def __init__(self, commands: Commands, prefix: str, hashed: "Scripts | None" = None) -> None:
        for name in Scripts.__annotations__:
            when_full = name == "announce_when_full"
            text = source_allowing_oom("announce") if when_full else source(name)
            call = commands.direct if name in _DIRECT else commands.command
            sha = getattr(hashed, name).sha if hashed else ""
            setattr(self, name, Script(call, prefix, text, sha))
