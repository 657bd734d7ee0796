"""Loads the Lua scripts in lua/ and calls them by name.

A script is one file per verb; ``--@ include FILE`` pulls in a fragment that several verbs share. Every
script takes the key prefix as its one key, so that on a cluster a shard's prefix decides the slot.
A server that lost its scripts (restart, SCRIPT FLUSH, failover) gets them again and the call is repeated:
NOSCRIPT says that nothing was run.
"""

import hashlib
import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any, Protocol

from redis.exceptions import NoScriptError

_INCLUDE = re.compile(r"^--@ include (\S+)\n", re.MULTILINE)
_ALLOW_OOM = "#!lua flags=allow-oom\n"


class Commands(Protocol):
    async def command(self, *args: str | bytes | int | float) -> Any: ...


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


class Script:
    """One script on one server."""

    def __init__(self, commands: Commands, prefix: str, text: str) -> None:
        self._commands = commands
        self._prefix = prefix
        self._text = text
        self._sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()

    async def __call__(self, argv: Sequence[str | bytes | int | float]) -> Any:
        """Runs the script; raises StoreAway, or redis.exceptions.ResponseError when the server refuses it."""
        command = self._commands.command
        try:
            return await command("EVALSHA", self._sha, 1, self._prefix, *argv)
        except NoScriptError:
            await command("SCRIPT", "LOAD", self._text)
            return await command("EVALSHA", self._sha, 1, self._prefix, *argv)


class Scripts:
    """All scripts, by name."""

    def __init__(self, commands: Commands, prefix: str) -> None:
        def script(name: str) -> Script:
            return Script(commands, prefix, source(name))

        self.announce = script("announce")
        self.announce_when_full = Script(commands, prefix, source_allowing_oom("announce"))
        self.reap = script("reap")
        self.due = script("due")
        self.sweep = script("sweep")
        self.heartbeat = script("heartbeat")
        self.totals = script("totals")
        self.add = script("add")
        self.edit = script("edit")
        self.deny = script("deny")
        self.index = script("index")
        self.search = script("search")
        self.remove = script("remove")
        self.add_user = script("add_user")
        self.rotate_user = script("rotate_user")
        self.bring_user = script("bring_user")
        self.delete_user = script("delete_user")
        self.forgive = script("forgive")
        self.rank_debts = script("rank_debts")
        self.software = script("software")
        self.count = script("count")
        self.sight = script("sight")
        self.estimate = script("estimate")
        self.clean = script("clean")
        self.collect = script("collect")
        self.sent = script("sent")
        self.take = script("take")
        self.score = script("score")
        self.reset_score = script("reset_score")
        self.enqueue = script("enqueue")
        self.enqueue_slot = script("enqueue_slot")
        self.claim = script("claim")
        self.extend = script("extend")
        self.finish = script("finish")
        self.save_cursor = script("save_cursor")
        self.retry = script("retry")
        self.purge = script("purge")
        self.abandon = script("abandon")
        self.add_token = script("add_token")
        self.sign_in = script("sign_in")
