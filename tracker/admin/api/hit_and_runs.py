"""/hit-and-runs: the users who have them, and those that are pending. Forgiving: users.py."""

from pydantic import Field

from tracker.admin.api.contract import Call, Endpoints, Reply
from tracker.admin.api.models import Moment, Page, Paged, page_of
from tracker.admin.api.users import endpoints as user_endpoints
from tracker.operations import users as user_operations

endpoints = Endpoints(user_endpoints.tag, user_endpoints.about)


class HitAndRuns(Reply):
    """A user with hit-and-runs."""

    user_id: str
    torrents: int


class HitAndRunsPage(Page[HitAndRuns]):
    """Users with hit-and-runs, highest count first."""


class PendingHitAndRun(Reply):
    """A torrent that a user has left, and that becomes a hit-and-run unless the user comes back before `at`."""

    user_id: str
    torrent_id: str
    info_hash: str | None = Field(description="null if the torrent was removed.")
    name: str
    at: Moment
    downloaded: int
    uploaded: int
    total_seconds: int
    seed_seconds: int


class PendingHitAndRunsPage(Page[PendingHitAndRun]):
    """Pending hit-and-runs, the next one first."""


@endpoints.get("/hit-and-runs", "List users with hit-and-runs")
async def hit_and_runs(call: Call, query: Paged) -> HitAndRunsPage:
    """Highest count first."""
    users = call.store.users
    found = await users.hit_and_runs(query.offset, query.limit)
    items = [HitAndRuns(user_id=user_id, torrents=number) for user_id, number in found]
    return HitAndRunsPage(**page_of(query, items, await users.hit_and_run_count()))


@endpoints.get("/hit-and-runs/pending", "List pending hit-and-runs")
async def pending_hit_and_runs(call: Call, query: Paged) -> PendingHitAndRunsPage:
    """Torrents whose users may still come back: see `TRACKER_USERS__HNR_GRACE_SECONDS`."""
    found = await user_operations.pending_hit_and_runs(call.store, query.offset, query.limit)
    total = await call.store.hit_and_runs.pending_count()
    return PendingHitAndRunsPage(**page_of(query, [PendingHitAndRun(**each) for each in found], total))
