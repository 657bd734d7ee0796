"""Loads the Lua scripts in lua/ and calls them by name.

A script is one file per verb; ``--@ include FILE`` pulls in a fragment that several verbs share. Every
script takes the key prefix as its one key, so that on a cluster a shard's prefix decides the slot.
A server that lost its scripts (restart, SCRIPT FLUSH, failover) gets them again and the call is repeated:
NOSCRIPT says that nothing was run.
"""

import hashlib
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from importlib import resources
from typing import Any, Protocol

from redis.exceptions import NoScriptError

_INCLUDE = re.compile(r"^--@ include (\S+)\n", re.MULTILINE)
_ALLOW_OOM = "#!lua flags=allow-oom\n"


Call = Callable[..., Awaitable[Any]]


class Commands(Protocol):
    async def command(self, *args: str | bytes | int | float) -> Any: ...

    async def direct(self, *args: str | bytes | int | float) -> Any: ...


@cache
def source(name: str) -> str:
    """The text of script ``name`` as the server gets it, includes resolved."""
    folder = resources.files("tracker.store") / "lua"
    text = (folder / f"{name}.lua").read_text(encoding="utf-8")
    return _INCLUDE.sub(lambda match: (folder / match[1]).read_text(encoding="utf-8"), text)


@cache
def source_allowing_oom(name: str) -> str:
    """The same script as one that the server also runs when it is out of memory."""
    return _ALLOW_OOM + source(name).removeprefix("#!lua\n")


_DIRECT = ("announce", "announce_when_full", "scrape", "reap", "due")
"""Those on which peers wait, and those that come by the thousand when a crowd goes silent: they have a line of their own."""


class Script:
    """One script on one server."""

    def __init__(self, call: Call, prefix: str, text: str) -> None:
        self._call = call
        sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
        self.head = ("EVALSHA", sha, 1, prefix)
        """The command that runs it, up to its arguments; NOSCRIPT is answered when ``load`` must go first."""
        self.load = ("SCRIPT", "LOAD", text)

    async def __call__(self, argv: Sequence[str | bytes | int | float]) -> Any:
        """Runs the script; raises StoreAway, or redis.exceptions.ResponseError when the server refuses it."""
        command = self._call
        try:
            return await command(*self.head, *argv)
        except NoScriptError:
            await command(*self.load)
            return await command(*self.head, *argv)


class Scripts:
    """All scripts, by name: each is the file lua/NAME.lua."""

    announce: Script
    announce_when_full: Script
    scrape: Script
    reap: Script
    due: Script
    sweep: Script
    heartbeat: Script
    rewind: Script
    totals: Script
    add: Script
    edit: Script
    deny: Script
    allow: Script
    index: Script
    search: Script
    reindex: Script
    tidy: Script
    remove: Script
    add_user: Script
    rotate_user: Script
    bring_user: Script
    delete_user: Script
    forgive: Script
    rank_debts: Script
    software: Script
    charge: Script
    count: Script
    sight: Script
    estimate: Script
    clean: Script
    collect: Script
    sent: Script
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

    def __init__(self, commands: Commands, prefix: str) -> None:
        for name in Scripts.__annotations__:
            when_full = name == "announce_when_full"
            text = source_allowing_oom("announce") if when_full else source(name)
            call = commands.direct if name in _DIRECT else commands.command
            setattr(self, name, Script(call, prefix, text))
