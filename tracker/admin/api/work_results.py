"""/work/projects/{project}/log and leaderboard: finished claims, and who finished them."""

from typing import Annotated, Literal

from pydantic import Field

from tracker.admin.api.contract import Call, Endpoints, Query, Reply
from tracker.admin.api.models import Limit, Moment, NewestFirst, OptionalMoment, Page, Paged, copy_of
from tracker.admin.api.work import Address, EntryId, ProjectText
from tracker.store.work.log import FinishedClaim, finished_claim
from tracker.store.work.statistics import Rank

endpoints = Endpoints("work-results", "Results of work distribution: finished claims, and leaderboards.")


@copy_of(FinishedClaim, at=Moment, address=Address, claimed_at=OptionalMoment)
class LogRow(Reply):
    """A finished claim."""


class LogPage(NewestFirst[LogRow]):
    """A page of the log, newest first."""


class LogQuery(Query):
    before: EntryId | None = Field(None, description="Only older entries: `next_before` of the previous page.")
    limit: Limit = Field(100, description="Max entries per page.")


@copy_of(Rank)
class RankRow(Reply):
    """A claimant's results in the period."""


class RankPage(Page[RankRow]):
    """A page of the leaderboard, highest first."""


Span = Annotated[
    str,
    Field(
        pattern="^(all|[0-9]{4}-(0[1-9]|1[0-2])|[0-9]{4}-W(0[1-9]|[1-4][0-9]|5[0-3]))$",
        description="`all`, a month such as `2026-11`, or an ISO week such as `2026-W47` (UTC).",
        examples=["all", "2026-11", "2026-W47"],
    ),
]


class RankQuery(Paged):
    by: Literal["count", "bytes", "seconds"] = Field("count", description="`count`: finished items.")
    period: Span = "all"


@endpoints.get("/work/projects/{project}/log", "List finished claims")
async def log(call: Call, project: ProjectText, query: LogQuery) -> LogPage:
    work = call.store.work
    await work.projects.get(project)
    found = await work.log.newest(project, query.limit, query.before or "")
    more = found[-1].id if len(found) == query.limit else None
    items = [LogRow.from_record(finished_claim(each), **call.hidden_address) for each in found]
    return LogPage(items=items, next_before=more)


@endpoints.get("/work/projects/{project}/leaderboard", "List claimants by results")
async def leaderboard(call: Call, project: ProjectText, query: RankQuery) -> RankPage:
    """Months are kept for 13 months, weeks for 13 weeks."""
    span = None if query.period == "all" else query.period
    work = call.store.work
    await work.projects.get(project)
    found, total = await work.leaderboard.table(project, query.by, span, query.limit, query.offset)
    return RankPage.of(query, [RankRow.from_record(each) for each in found], total)
