"""Projects, items and claims of work distribution as Python values, with the checks of what claimants and admins send.

A project hands out items to claimants, each under a lease. Kind ``seeding``: an item is an info hash (40 lowercase hex
digits) and a claimant a user id. Kind ``items``: an item is any text and a claimant a name.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, get_args

from tracker.errors import ClientError, NotFound
from tracker.store.schema.lenient_numbers import json_object, whole
from tracker.store.schema.record import Field, fields_of

Kind = Literal["items", "seeding"]
Order = Literal["random", "weakest"]
Verify = Literal["none", "announce", "handshake", "piece", "address"]
Queue = Literal["todo", "secondary", "redo"]
Refused = Literal["blocked", "outdated", "budget", "rate", "empty"]
DoneOutcome = Literal["done", "duplicate", "unknown", "stranger", "unverified", "domains", "blocked"]
Status = Literal["todo", "out", "done"]
Place = Literal["todo", "secondary", "redo", "done"]

QUEUES: tuple[Queue, ...] = get_args(Queue)
MAX_EXACT = 2**53 - 1
MAX_ITEM_BYTES = 255
MAX_TEXT = 255
"""Characters of a text of a claimant's that is kept, such as a version."""
MAX_DOMAINS = 20
_MAX_DOMAIN = 64
RESERVED = frozenset(
    {*("blocked", "request", "done", "release", "extend", "mine", "upload", "uploaded", "live"), *("items", "static")}
)
"""Names that are a key beside the projects, or a path of the claimants' listener."""
_PROJECT = _CLAIMANT = re.compile(r"[-_0-9A-Za-z]{1,30}", re.ASCII)
_NAME = re.compile(r"[-_a-zA-Z0-9]{3,30}", re.ASCII)
_USER_ID = re.compile(r"[1-9][0-9]{0,14}", re.ASCII)
_TARGET = re.compile(r"(?:rsync|https?)://[!-~]{1,200}/", re.ASCII)
_INFO_HASH = re.compile(r"[0-9a-f]{40}", re.ASCII)
DOMAINS = f"domains are at most {MAX_DOMAINS} different names of 1 to {_MAX_DOMAIN} characters"
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class UnknownProject(NotFound):
    """There is no such project, or it is being deleted."""

    def __init__(self) -> None:
        super().__init__("there is no such project")


def known(answer: Any) -> Any:
    """The answer of a script about a project. Raises UnknownProject if there is none."""
    if answer is None:
        raise UnknownProject
    return answer


LEASE_SECONDS: Mapping[Kind, int] = {"items": 7 * 86_400, "seeding": 6 * 3600}
"""How long a new claim lasts, unless the project says so."""


def _setting(
    about: str, *, lowest: int = 0, highest: int = 10**15, max_length: int = MAX_ITEM_BYTES, off: str = ""
) -> Field:
    return Field(about, "project", lowest=lowest, highest=highest, max_length=max_length, off=off)


@dataclass(frozen=True, slots=True)
class Project:
    """The definition of a project. The kind cannot be changed."""

    name: str
    kind: Annotated[Kind, Field()] = "items"
    title: Annotated[str, _setting("Title of the project's page.")] = ""
    item_type: Annotated[str, _setting("What the items are; shown on the project's page.")] = ""
    domains: Annotated[
        tuple[str, ...],
        _setting("Names under which a finished item reports bytes: exactly these; empty: any.", max_length=MAX_DOMAINS),
    ] = ()
    """Sorted."""
    min_version: Annotated[str, _setting("Oldest version of a claimant's program, compared as text; empty: any.")] = ""
    upload_targets: Annotated[
        tuple[str, ...],
        _setting(
            "Where claimants' programs upload, in turn: URLs of rsync, http or https that end in `/`; `:downloader` "
            "stands for the claimant's name.",
            max_length=20,
        ),
    ] = ()
    per_minute: Annotated[int, _setting("Max claims in any 60 s, by all claimants; 0: no limit.")] = 0
    start_budget: Annotated[int, _setting("Max claims at once of a new claimant.", lowest=1)] = 2
    budget: Annotated[int, _setting("Max claims at once of any claimant.", lowest=1)] = 20
    lease_seconds: Annotated[
        int,
        _setting(
            "How long a new claim lasts, at most a year; 0: 7 days in kind `items`, 6 hours in `seeding`.",
            highest=366 * 86_400,
        ),
    ] = 0
    verify: Annotated[
        Verify,
        _setting(
            "How the tracker verifies a claim; `none`: the claimant's report counts. `address`, for trackers without "
            "passkeys, can only be set when the project is created, and stays."
        ),
    ] = "none"
    passkeys: Annotated[bool, _setting("Claimants identify by passkey.")] = False  # always so in ``seeding``
    order: Annotated[Order, _setting("Which items of a queue are given first.")] = "random"
    """``random``: all orders of a queue are equally likely. ``weakest``: by the place that was given."""
    lapsed_to_redo: Annotated[
        bool, _setting("The item of a lapsed claim goes to the queue `redo` instead of its own.", off="lapsed-to-own")
    ] = False
    block_wrong_domains: Annotated[
        bool, _setting("An address that reports wrong domains is blocked.", off="ignore-wrong-domains")
    ] = False
    keep_done_days: Annotated[int, _setting("How long finished items are kept; 0: for ever, only in kind `items`.")] = 0
    public: Annotated[bool, _setting("The list of needed torrents is served to everyone.", off="hidden")] = False
    target: Annotated[int, _setting("Seeders that each torrent should have.", lowest=1)] = 3
    seed_hours: Annotated[int, _setting("Verified seed time of a finished claim, in hours.")] = 24
    claim_days: Annotated[int, _setting("A claim ends after these days at the latest.")] = 7
    """Plus the time to download at 100 kB/s."""
    min_size: Annotated[int, _setting("Minimum torrent size in bytes.")] = 0
    max_size: Annotated[int, _setting("Maximum torrent size in bytes; 0: no limit.")] = 0

    def __post_init__(self) -> None:
        if self.lease_seconds == 0 and self.kind in LEASE_SECONDS:
            object.__setattr__(self, "lease_seconds", LEASE_SECONDS[self.kind])

    @property
    def by_name(self) -> bool:
        """Whether a claimant is known by the name that it gives, and not by a passkey."""
        return self.verify == "address" or (self.kind == "items" and not self.passkeys)


PROJECT_FIELDS = tuple(fields_of(Project))


@dataclass(frozen=True, slots=True)
class NewItem:
    """An item to add. ``place`` orders the queue, lowest first; None draws a place below 1."""

    name: str
    queue: Queue = "todo"
    claimants: tuple[str, ...] = ()  # only these may claim it, from queues of their own; ``queue`` is ignored
    copies: int = 1  # how many claimants shall have it
    place: float | None = None


@dataclass(frozen=True, slots=True)
class Added:
    processed: int
    added: int


@dataclass(frozen=True, slots=True)
class ItemStatus:
    name: str
    status: Status | None
    claimants: tuple[str, ...]  # who has it
    copies: int  # how many more are to be given out


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim. Times are epoch seconds."""

    item: str
    claimant: str
    token: str
    claimed_at: Annotated[float, Field()]
    lease_ends: Annotated[float, Field()]
    queue: Annotated[str, Field("Where the item came from.")]
    """``todo``, ``todo:secondary``, ``todo:redo`` or ``todo:d:<claimant>``."""
    place: float = 0.0
    address: Annotated[str, Field()] = ""
    version: Annotated[str, Field("Version of the claimant's program, as it says.")] = ""
    state: Annotated[str, Field("`claimed`, `seen` (in the swarm) or `seeding`.")] = "claimed"
    seed_time: int = 0  # seed time (s) of the user's account on the torrent when it was claimed
    uploaded: int = 0  # bytes uploaded in that account when it was claimed
    checked_at: Annotated[float, Field("When the claim was last verified.")] = 0.0
    seen_seconds: int = 0  # ``verify`` is ``address``: how long the claimant's address was seen to seed


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a claimant gets no item."""

    reason: Refused
    retry_seconds: float = 0.0  # ``rate``: when the next claim may be granted
    min_version: str = ""  # ``outdated``: the oldest version that is accepted


ClaimReply = Claim | Refusal


@dataclass(frozen=True, slots=True)
class DoneResult:
    """What became of a report that an item is done.

    ``done``: counted. ``duplicate``: was counted before. All others change no claim, except ``domains``, which releases
    the item: ``unknown`` (no such item), ``stranger`` (not the holder, an old token, or the lease was lost),
    ``unverified`` (the project verifies by itself), ``blocked``.
    """

    outcome: DoneOutcome
    missing_seconds: int = 0  # ``unverified``: seed time that is missing

    @property
    def counted(self) -> bool:
        return self.outcome == "done"


def is_project_name(name: str) -> bool:
    return bool(_PROJECT.fullmatch(name)) and name not in RESERVED


def check_project_name(name: str) -> str:
    """Raises ClientError."""
    if not is_project_name(name):
        raise ClientError("a project's name has 1 to 30 letters, digits, - and _, and is not reserved")
    return name


def is_claimant(project: Project, claimant: str) -> bool:
    """Whether ``claimant`` can be one of a project: a name in ``items`` and where addresses are verified, else a user
    id."""
    named = project.kind == "items" or project.by_name
    return bool((_NAME if named else _USER_ID).fullmatch(claimant))


def check_claimant(claimant: str) -> str:
    """Names and user ids alike. Raises ClientError."""
    if not _CLAIMANT.fullmatch(claimant):
        raise ClientError("a claimant's name has 3 to 30 letters, digits, - and _")
    return claimant


def check_item(kind: Kind, item: str) -> str:
    """Raises ClientError."""
    if kind == "seeding":
        if not _INFO_HASH.fullmatch(item):
            raise ClientError("an item of this project is an info hash: 40 lowercase hex digits")
    elif not is_text_item(item):
        raise ClientError(f"an item has 1 to {MAX_ITEM_BYTES} bytes without control characters")
    return item


def is_text_item(item: str) -> bool:
    try:
        size = len(item.encode())
    except UnicodeEncodeError:  # lone surrogates
        return False
    return 0 < size <= MAX_ITEM_BYTES and not CONTROL.search(item) and item == item.strip()


def check_bytes(reported: Mapping[str, Any]) -> dict[str, int]:
    """Bytes by domain. Raises ClientError for anything but whole numbers from 0 to 2^53-1, in total too, and for names
    that are too many or too long: each report is kept in the log."""
    if not are_domains(tuple(reported)):
        raise ClientError(DOMAINS)
    for number in reported.values():
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= MAX_EXACT:
            raise ClientError("bytes are whole numbers from 0 to 9007199254740991")
    if sum(reported.values()) > MAX_EXACT:
        raise ClientError("bytes are at most 9007199254740991 in total")
    return dict(reported)


def are_domains(names: Sequence[str]) -> bool:
    return len(names) <= MAX_DOMAINS and all(len(name) <= _MAX_DOMAIN and is_text_item(name) for name in names)


def are_targets(urls: Sequence[str]) -> bool:
    return all(_TARGET.fullmatch(url) for url in urls)


def kept_text(text: str) -> str:
    """A claimant's text as it is kept: its start, and ``?`` for what is not Unicode."""
    return text[:MAX_TEXT].encode("utf-8", "replace").decode()


def domains_text(domains: Sequence[str] | Mapping[str, int]) -> str:
    """Names of domains in the one form in which they are stored and compared."""
    return json.dumps(sorted(domains), ensure_ascii=True, separators=(",", ":")) if domains else ""


def claim_of(name: bytes, record: bytes | None, token: bytes | None, ends_ms: float) -> Claim:
    """A stored claim: ``name`` is `<item> <claimant>`, ``record`` its JSON, ``ends_ms`` the end of its lease. Of a
    record that a site has overwritten, what cannot be read is empty or 0."""
    row = json_object(record or b"") or {}
    item, _, claimant = name.decode("utf-8", "replace").rpartition(" ")

    def text(field: str) -> str:
        return str(row.get(field, "")).encode(errors="replace").decode()

    def number(field: str) -> float:
        try:
            found = float(row.get(field) or 0)
        except (TypeError, ValueError, OverflowError):
            return 0.0
        return found if math.isfinite(found) else 0.0

    return Claim(
        item=item,
        claimant=claimant,
        token=(token or b"").decode("utf-8", "replace"),
        claimed_at=number("at") / 1000,
        lease_ends=ends_ms / 1000,
        queue=text("queue"),
        place=number("place"),
        address=text("ip"),
        version=text("version"),
        state=text("state"),
        seed_time=whole(text("seed_time").encode()),
        uploaded=whole(text("uploaded").encode()),
        checked_at=number("checked") / 1000,
        seen_seconds=int(number("found")) // 1000,
    )


class Page(NamedTuple):
    """Part of a list, and where to go on; an empty cursor: that was the last part."""

    entries: Sequence[Any]
    cursor: str
