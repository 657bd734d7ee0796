"""/settings, /health and /doctor: configuration and health of the tracker; /tokens and /audit: for role admin only."""

from dataclasses import asdict
from typing import Annotated, Literal

from pydantic import Field

from tracker import __version__
from tracker.admin.api.contract import Body, Call, Endpoints, Query, Reply
from tracker.admin.api.models import ItemList, Moment, copy_of, reply_of
from tracker.admin.context import AdminContext
from tracker.doctor import Finding
from tracker.doctor.checks import run_checks
from tracker.settings.reference import Described, describe
from tracker.store.access.audit import AuditEntry, AuditFilter, ChangedObject, Way
from tracker.store.access.tokens import MAX_NETWORKS, Role, Token
from tracker.store.schema.multipliers import MAX_END
from tracker.store.schema.record import shown

endpoints = Endpoints("system", "Configuration and health of the tracker.")


@copy_of(Described, reloaded=None)
class SettingRow(Reply):
    """A setting and its current value. Passwords and tokens are masked."""

    reloaded: bool = Field(description="true: SIGHUP reloads it; false: a restart is needed.")
    waiting: bool = Field(description="true: changed since the start; a restart is needed.")


class Health(Reply):
    """Health of the tracker."""

    ready: bool
    problems: list[str] = Field(description="Why it is not ready; empty if ready.")
    shards_unavailable: list[int] = Field(description="Unavailable shards of the store; the others are served.")
    main_unavailable: bool = Field(
        description="Whether the main store of several shards is unavailable. Announces are served meanwhile."
    )
    version: str
    store: str = Field(description="Server software of the store and its version.")
    geoip: str = Field(description="The GeoIP database, or why it is not usable; empty if none is set.")
    dht: Literal["off", "waiting", "up", "down"] = Field(
        description="The node of the DHT. `waiting`: another tracker runs the node of this name. `down`: no node has "
        "answered for 60 s. It does not affect `ready`."
    )


@copy_of(Finding)
class FindingRow(Reply):
    """The result of one check."""


@endpoints.get("/settings", "List settings", schema="SettingList: All settings.")
async def settings(call: Call) -> ItemList[SettingRow]:
    waiting = last.waiting if (last := call.context.last_reload()) else ()
    described = describe(call.context.settings)
    return ItemList(items=[SettingRow(**asdict(each), waiting=each.name in waiting) for each in described])


@endpoints.get("/health", "Show health")
async def health(call: Call) -> Health:
    """Always 200 if the tracker responds; `ready` says whether it serves peers."""
    context = call.context
    problems = list(context.problems())
    database = context.places.describe()
    return Health(
        ready=not problems,
        problems=problems,
        shards_unavailable=context.store.shards.unavailable,
        main_unavailable=context.store.shards.main_is_unavailable,
        version=__version__,
        store=context.server,
        geoip=str(database) if database else context.places.problem,
        dht=_dht(context),
    )


def _dht(context: AdminContext) -> Literal["off", "waiting", "up", "down"]:
    if not context.settings.dht.enabled:
        return "off"
    up = context.telemetry().gauges.get("dht_up")
    return "waiting" if up is None else "up" if up else "down"


@endpoints.get("/doctor", "Run health checks", schema="Findings: The results of all checks, as of `tracker doctor`.")
async def examine(call: Call) -> ItemList[FindingRow]:
    """Checks the store and the settings. Changes nothing."""
    found = run_checks(call.store, call.context.settings)
    return ItemList(items=[FindingRow.from_record(each) async for each in found])


token_endpoints = Endpoints("tokens", "Tokens for the dashboard, the API and the metrics.")

TokenIdText = Annotated[
    str, Field(pattern="^[0-9a-f]{12}$", description="Token ID; not secret.", examples=["0123456789ab"])
]


@reply_of(Token)
class TokenRow(Reply):
    """A token without its secret, which is not stored."""


class TokenNew(Body):
    """A new token."""

    name: Annotated[str, Field(min_length=1, max_length=64, pattern="^[^\\u0000-\\u001f\\u007f]*$")] = Field(
        description="Unique name of its user.", examples=["site"]
    )
    role: Role = Field(
        "read",
        description="`read`: GET only, without passkeys and addresses of users. `operate`: daily changes too. `admin`: "
        "everything.",
    )
    expires: int | None = Field(
        None, ge=1, le=253_402_300_799, description="When it becomes invalid (epoch s); null: never."
    )
    addresses: list[Annotated[str, Field(min_length=1, max_length=50)]] = Field(
        [],
        max_length=MAX_NETWORKS,
        description="IP addresses and networks that it may be used from; empty: any.",
        examples=[["192.0.2.0/24"]],
    )


class TokenCreated(TokenRow):
    """A new token with its secret, shown once."""

    status_code = 201

    token: str = Field(description="Send it as `Authorization: Bearer …`.")


@token_endpoints.get("/tokens", "List tokens", role="admin", schema="TokenList: All tokens, oldest first.")
async def list_all(call: Call) -> ItemList[TokenRow]:
    return ItemList(items=[TokenRow(**shown(token)) for token in await call.store.tokens.list()])


@token_endpoints.post(
    "/tokens",
    "Create a token",
    "token.create",
    role="admin",
    conflict="The name is taken, or there are too many tokens.",
)
async def create(call: Call, body: TokenNew) -> TokenCreated:
    token, text = await call.store.tokens.create(body.name, body.role, expires=body.expires, addresses=body.addresses)
    return TokenCreated(**shown(token), token=text)


@token_endpoints.delete("/tokens/{token_id}", "Revoke a token", "token.revoke", role="admin")
async def revoke(call: Call, token_id: TokenIdText) -> None:
    """Requests with it are refused immediately, and its sessions end."""
    await call.store.tokens.revoke(token_id)


audit_endpoints = Endpoints(
    "audit", "The audit log: who changed what, by the API, the dashboard, the command line or the site."
)

AUDIT_CURSOR = "^([0-9]{1,19}-[0-9]{1,19})?$"
Epoch = Annotated[int, Field(ge=0, le=MAX_END)]


class AuditQuery(Query):
    actor: str = Field("", max_length=200, description="The name of an actor, or the id of a token.")
    operation: Annotated[str, Field(max_length=50)] = Field(
        "", description="An operation such as `user.edit`, or the first part of its name.", examples=["user"]
    )
    object: str = Field("", max_length=200, description="The id of an object: an info hash, a user id, …")
    way: Way | None = Field(None, description="How it was changed.")
    since: Epoch | None = Field(None, description="Only entries from this time on (epoch s).")
    until: Epoch | None = Field(None, description="Only entries until this time (epoch s).")

    @property
    def filter(self) -> AuditFilter:
        return AuditFilter(self.actor, self.operation, self.object, self.way or "", self.since, self.until)


class AuditPageQuery(AuditQuery):
    cursor: str = Field(
        "", pattern=AUDIT_CURSOR, description="`next_cursor` of the previous page.", examples=["1800000000000-0"]
    )
    limit: int = Field(100, ge=1, le=500, description="Max entries per page.")


@copy_of(ChangedObject)
class AuditObject(Reply):
    """An object, and its changed fields. A field that is missing did not exist, or had no value."""


@copy_of(AuditEntry, objects=list[AuditObject], at=Moment)
class AuditRow(Reply):
    """One change."""


class AuditPage(Reply):
    """Entries, newest first. A page may be empty and have a `next_cursor`: 10,000 entries are searched per page."""

    items: list[AuditRow]
    next_cursor: str | None


@audit_endpoints.get("/audit", "List changes by admins", role="admin")
async def audit_list_all(call: Call, query: AuditPageQuery) -> AuditPage:
    """Changes written directly to Redis are not recorded."""
    found, cursor = await call.store.audit.page(query.filter, query.cursor, query.limit)
    return AuditPage(items=[AuditRow(**asdict(entry)) for entry in found], next_cursor=cursor or None)
