"""/audit: the audit log. Only role admin reads it."""

from dataclasses import asdict
from typing import Annotated

from pydantic import Field

from tracker.admin.api.contract import Call, Endpoints, Query, Reply
from tracker.admin.api.models import Moment, copy_of
from tracker.store.access.audit import AuditEntry, AuditFilter, ChangedObject, Way
from tracker.store.schema.multipliers import MAX_END

endpoints = Endpoints(
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


@endpoints.get("/audit", "List changes by admins", role="admin")
async def list_all(call: Call, query: AuditPageQuery) -> AuditPage:
    """Changes written directly to Redis are not recorded."""
    found, cursor = await call.store.audit.page(query.filter, query.cursor, query.limit)
    return AuditPage(items=[AuditRow(**asdict(entry)) for entry in found], next_cursor=cursor or None)
