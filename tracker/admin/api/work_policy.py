"""/work/projects/{project}/policy: what the policy would enqueue now, and why."""

from typing import Annotated

from pydantic import BeforeValidator, Field

from tracker.admin.api.contract import Call, Endpoints, Query, Reply
from tracker.admin.api.models import Hex, Items, copy_of, number
from tracker.admin.api.work import ProjectText
from tracker.operations.work import policy_preview
from tracker.store.work.policy import Change

endpoints = Endpoints("work-policy", "The policy of projects of kind `seeding`: which torrents need seeders.")


class PolicyQuery(Query):
    max_torrents: Annotated[int, Field(ge=1, le=2000), BeforeValidator(number)] = Field(
        500, description="How many torrents are looked at, those with the fewest seeders first."
    )


@copy_of(Change, info_hash=Hex, reason=None)
class PolicyRow(Reply):
    """A torrent whose demand the policy would change."""

    reason: str = Field(
        description="Such as `weak`, `below target`, `reseed request` (only users who completed it are asked), "
        "`no seeder`, `enough`, `denied`, `nowork` (a label)."
    )


class PolicyPreview(Items[PolicyRow]):
    """What the policy would change."""


@endpoints.get("/work/projects/{project}/policy", "Preview the policy")
async def preview(call: Call, project: ProjectText, query: PolicyQuery) -> PolicyPreview:
    """Changes nothing. The tracker runs the policy every ten minutes."""
    found = await policy_preview(call.store, project, max_torrents=query.max_torrents)
    return PolicyPreview(items=[PolicyRow.from_record(each) for each in found])
