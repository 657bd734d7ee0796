"""/work/projects: the projects of work distribution, and what the policy of one would enqueue now."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from tracker.admin.api.contract import Body, Call, Endpoints, Query, Reply
from tracker.admin.api.models import Hex, Items, OptionalText, changes_of, copy_of, number, reply_of
from tracker.operations.work import create_project, policy_preview
from tracker.store.schema.record import shown
from tracker.store.work.policy import Change
from tracker.store.work.records import PROJECT_FIELDS, Project
from tracker.store.work.statistics import ProjectStatistics
from tracker.store.work.verification import asks_for_probes

endpoints = Endpoints(
    "work", "Work distribution: projects whose items are given to claimants, each for a limited time."
)

ProjectText = Annotated[
    str, Field(pattern="^[-_0-9A-Za-z]{1,30}$", description="Name of a project.", examples=["archive"])
]
ItemText = Annotated[
    str,
    Field(
        min_length=1,
        max_length=255,
        description="An info hash in a project of kind `seeding`, else a text of one line, at most 255 bytes.",
        examples=["c12fe1c06bba254a9dc9f519b335aa7c1367a88a"],
    ),
]
ClaimantText = Annotated[
    str,
    Field(
        pattern="^[-_0-9A-Za-z]{1,30}$",
        description="A claimant: the user ID in a project of kind `seeding`, else a name of 3 to 30 characters.",
        examples=["volunteer_1"],
    ),
]
Address = Annotated[OptionalText, Field(description="Null if unknown, and for role `read`.")]
EntryId = Annotated[
    str, Field(pattern="^[0-9]{1,15}-[0-9]{1,15}$", description="ID of an entry.", examples=["1800000000000-0"])
]
Cursor = Annotated[str, Field(max_length=400, description="`next_cursor` of the previous page; empty for the first.")]
Number = Annotated[int, Field(ge=0, le=10**15)]
KindName = Literal["items", "seeding"]


@changes_of(Project)
class ProjectPatch(Body):
    """Settings of a project. Missing and null fields stay unchanged."""


class ProjectNew(ProjectPatch):
    """A new project. The kind decides the defaults of the other fields, and cannot be changed later."""

    name: ProjectText
    kind: KindName = "items"


class Queues(Reply):
    """Items and claims of a project, by state."""

    todo: int = Field(description="Items in the queue `todo`.")
    secondary: int
    redo: int
    asked: int = Field(description="Items that only certain claimants are asked for.")
    out: int = Field(description="Claims.")
    done: int = Field(description="Finished items that are kept.")


class Totals(Reply):
    """Totals of a project since its creation."""

    added: int = Field(description="Copies of items wanted so far.")
    claimed: int
    done: int = Field(description="Finished claims.")
    lapsed: int
    released: int
    bytes: int = Field(description="Bytes reported by claimants.")
    seconds: int = Field(description="Verified seed time.")


@reply_of(Project)
class ProjectRow(Reply):
    """A project."""

    name: str
    claimants: int = Field(description="Claimants who ever finished an item.")
    items: Queues
    totals: Totals


class ProjectDetails(ProjectRow):
    """A project with its bytes by domain."""

    location = "/work/projects/{reply.name}"

    domain_bytes: dict[str, int]
    probes_missing: bool = Field(
        description="`verify` asks for connections to claimants' seeders, but `TRACKER_PROBE__ENABLED` is off: claims "
        "are verified by announces alone."
    )


class ProjectList(Items[ProjectRow]):
    """All projects by name."""


@endpoints.get("/work/projects", "List projects")
async def list_all(call: Call) -> ProjectList:
    work = call.store.work
    projects = await work.projects.all()
    found = await work.statistics.read([project.name for project in projects])
    return ProjectList(items=[ProjectRow(**_row(project, each)) for project, each in zip(projects, found, strict=True)])


@endpoints.post("/work/projects", "Create a project", "project.create", status=201, conflict="The name is taken.")
async def create(call: Call, body: ProjectNew) -> ProjectDetails:
    project = await create_project(call.store, body.name, body.kind, _given(body))
    return await _details(call, project)


@endpoints.get("/work/projects/{project}", "Show a project")
async def show(call: Call, project: ProjectText) -> ProjectDetails:
    return await _details(call, await call.store.work.projects.get(project))


@endpoints.patch("/work/projects/{project}", "Edit a project", "project.edit")
async def edit(call: Call, project: ProjectText, body: ProjectPatch) -> ProjectDetails:
    """Applies from the next call of a claimant on. The kind cannot be changed."""
    return await _details(call, await call.store.work.projects.edit(project, _given(body)))


@endpoints.delete("/work/projects/{project}", "Delete a project", "project.delete", role="admin")
async def delete(call: Call, project: ProjectText) -> None:
    """Deletes its items, claims, log and leaderboards. Other projects are unchanged."""
    await call.store.work.projects.delete(project)


def _given(body: ProjectPatch) -> dict[str, Any]:
    """The settings that are not null."""
    given = body.model_dump(exclude_none=True, exclude={"name", "kind"})
    return {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}


async def _details(call: Call, project: Project) -> ProjectDetails:
    work = call.store.work
    (found,) = await work.statistics.read([project.name])
    return ProjectDetails(
        **_row(project, found),
        domain_bytes=await work.statistics.domain_bytes(project.name),
        probes_missing=asks_for_probes(project) and not call.context.settings.probe.enabled,
    )


def _row(project: Project, found: ProjectStatistics) -> dict[str, Any]:
    fields = shown(project, ("name", *PROJECT_FIELDS))
    items = Queues(**{name: getattr(found, name) for name in Queues.model_fields})
    totals = Totals(**{name: found.totals.get(name, 0) for name in Totals.model_fields})
    return {**fields, "claimants": found.claimants, "items": items, "totals": totals}


policy_endpoints = Endpoints("work-policy", "The policy of projects of kind `seeding`: which torrents need seeders.")


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


@policy_endpoints.get("/work/projects/{project}/policy", "Preview the policy")
async def preview(call: Call, project: ProjectText, query: PolicyQuery) -> PolicyPreview:
    """Changes nothing. The tracker runs the policy every ten minutes."""
    found = await policy_preview(call.store, project, max_torrents=query.max_torrents)
    return PolicyPreview(items=[PolicyRow.from_record(each) for each in found])
