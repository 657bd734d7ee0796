"""What the calls of a site change and read, by the operations that the API uses. Every change is noted for the audit
log first. And requests and answered announces a second, averaged over several times, as sites show them on a staff
page."""

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, create_model

from tracker.admin.context import AdminContext
from tracker.bittorrent import InfoHash
from tracker.errors import ClientError, Conflict, NotFound
from tracker.operations.audit import Change
from tracker.operations.peers import format_prefix
from tracker.operations.torrents import add_torrent, change_torrent_rule, edit_torrent, remove_torrent
from tracker.runtime.telemetry import Snapshot
from tracker.settings.model import Settings
from tracker.store.schema.multipliers import RuleChange, multiplier_text, rule_change
from tracker.store.store import Store
from tracker.store.torrents.torrents import Torrent
from tracker.store.users.fields import User, Value, checked_passkey

WINDOWS = (1, 10, 60, 900, 7200)
"""Seconds. The weight of a second falls to a third in this time."""
COUNTED = {"requests": "requests", "announce_responses": "announces"}
"""Name in the reply -> count of telemetry."""
_EVERY_SECONDS = 1.0


class Rates:
    """``telemetry`` returns the counts of all processes since their start, ``clock`` epoch seconds."""

    def __init__(self, telemetry: Callable[[], Snapshot], clock: Callable[[], float]) -> None:
        self._telemetry = telemetry
        self._clock = clock
        self.started_at = self._read_at = clock()
        self.counts = self._read()
        self.last_at = dict.fromkeys(COUNTED, 0.0)
        self.per_second = {(name, window): 0.0 for name in COUNTED for window in WINDOWS}

    def _read(self) -> dict[str, int]:
        counts = self._telemetry().counts
        return {name: counts.get(counted, 0) for name, counted in COUNTED.items()}

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_EVERY_SECONDS)
            self.read()

    def read(self) -> None:
        """Adds what was counted since the last time."""
        now, counts = self._clock(), self._read()
        seconds = max(0.001, now - self._read_at)
        for name, count in counts.items():
            new = max(0, count - self.counts[name])  # a web process that ended takes its counts along
            self.last_at[name] = now if new else self.last_at[name]
            for window in WINDOWS:
                old = self.per_second[name, window]
                self.per_second[name, window] = old + (new / seconds - old) * -math.expm1(-seconds / window)
        self._read_at, self.counts = now, counts

    def shown(self) -> dict[str, float]:
        """As UNIT3D reads them: times in epoch seconds."""
        return {
            "created_at": float(self.started_at),
            "last_request_at": float(self.last_at["requests"]),
            "last_announce_response_at": float(self.last_at["announce_responses"]),
            **{f"{name}_per_{window}s": rate for (name, window), rate in self.per_second.items()},
        }


@dataclass(frozen=True, slots=True)
class SiteCall:
    context: AdminContext
    change: Change
    rates: Rates
    apply: Callable[[Settings], None]
    """Takes changed settings."""

    @property
    def store(self) -> Store:
        return self.context.store

    def rule(self, name: str, upload: float = 1, download: float = 1) -> RuleChange:
        """The rule of this name; none where both factors are 1."""
        now = self.context.clock()
        if upload == download == 1:
            return RuleChange(int(now), name)
        texts = [None if factor == 1 else multiplier_text(factor) for factor in (upload, download)]
        return rule_change(now, name, texts[0], texts[1])


def of_text(parse: Callable[[str], Any], text: object) -> Any:
    """For a validator. Raises ValueError."""
    try:
        if isinstance(text, str):
            return parse(text)
    except ClientError as error:
        raise ValueError(error.text) from error
    raise ValueError("a text is expected")


Passkey = Annotated[str, AfterValidator(lambda text: of_text(checked_passkey, text))]


Handler = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Action:
    """A call of a site. ``operation`` is its name in the audit log; empty: it changes nothing that is recorded."""

    handler: Handler
    fields: type[BaseModel]
    operation: str


def action(handler: Handler, operation: str = "", **fixed: object) -> Action:
    """The fields of the call are the handler's parameters, except the ``fixed`` ones. Unknown fields are ignored."""
    _, *parameters = (p for p in inspect.signature(handler).parameters.values() if p.name not in fixed)
    fields: Any = {p.name: (p.annotation, ... if p.default is p.empty else p.default) for p in parameters}
    config = ConfigDict(extra="ignore", frozen=True, arbitrary_types_allowed=True)
    return Action(partial(handler, **fixed), create_model("Fields", __config__=config, **fields), operation)


async def save_torrent(
    call: SiteCall, torrent_id: int, info_hash: InfoHash, fields: Mapping[str, str], rule: RuleChange
) -> None:
    """Registers a torrent with the site's id, or changes it. Its rules that have a name stay as they are. Raises
    Conflict if the id or the info hash is known with another one."""
    store = call.store
    await call.change.touch("torrent", info_hash.hex())
    known = await store.torrents.get(info_hash)
    if known is None or not known.registered:
        rules = {"multi_up": rule.upload or "1", "multi_dn": rule.download or "1"}
        try:
            await add_torrent(store, info_hash, {**fields, **rules, "torrent_id": str(torrent_id)})
        except ClientError as error:
            raise Conflict(error.text) from error
        return
    if known.torrent_id != str(torrent_id):
        raise Conflict(f"this info hash has the id {known.torrent_id}; `tracker torrent renumber` changes ids")
    await edit_torrent(store, info_hash, {k: v for k, v in fields.items() if k != "snatches"})
    await change_torrent_rule(store, info_hash, rule)


async def delete_torrent(call: SiteCall, info_hash: InfoHash) -> None:
    """Also of a torrent that is not registered, because a site repeats a call that was not answered."""
    await call.change.touch("torrent", info_hash.hex())
    await remove_torrent(call.store, call.context.torrent_files, info_hash)


async def known_torrent(call: SiteCall, info_hash: InfoHash) -> Torrent:
    """A torrent to change. Raises NotFound."""
    await call.change.touch("torrent", info_hash.hex())
    found = await call.store.torrents.get(info_hash)
    if found is None or not found.registered:
        raise NotFound("unknown torrent: add it first")
    return found


async def torrent_of_id(store: Store, torrent_id: int) -> Torrent:
    """Raises NotFound."""
    found = await store.torrents.by_ids([str(torrent_id)])
    if not found:
        raise NotFound("unknown torrent: add it first")
    return found[0]


async def save_user(call: SiteCall, user_id: int, passkey: str, fields: Mapping[str, Value]) -> None:
    """Adds or changes a user, whose passkey is then this one. Raises Conflict if another user has the passkey."""
    store, who = call.store, str(user_id)
    await call.change.touch("user", who)
    known = await store.users.by_id(who)
    if known is not None and known.passkey != passkey:
        await store.users.rotate(known.passkey, passkey)
    (saved,) = await store.user_import.save([{"user_id": who, "passkey": passkey, **fields}])
    if isinstance(saved, ClientError):
        raise Conflict(saved.text)
    if saved.new:
        call.change.created("user", who)


async def known_user(call: SiteCall, who: str) -> User:
    """A user to change, by id or passkey. Raises NotFound."""
    await call.change.touch("user", who)
    try:
        return await call.store.users.find(who)
    except ClientError as error:
        raise NotFound(f"{error.text}: add the user first") from error


async def change_client(call: SiteCall, prefix: bytes, change: Callable[[bytes], Awaitable[object]]) -> None:
    """``change`` adds the prefix of peer ids to a list, or removes it."""
    await call.change.touch("client", format_prefix(prefix))
    await change(prefix)


async def give_token(call: SiteCall, user_id: int, torrent: Torrent) -> None:
    """A freeleech token without end. Raises NotFound for an unknown user."""
    user = await known_user(call, str(user_id))
    await call.store.freeleech.give(user.user_id, torrent.torrent_id)
