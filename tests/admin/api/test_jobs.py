from tests.admin.api.api_client import ApiClient, all_pages
from tests.admin.conftest import Admin
from tracker.store.jobs.records import REPROCESS, SWEEP, Result, fingerprint


async def test_jobs_are_queued(full: ApiClient) -> None:
    async with full.session.post("/api/v1/reprocess", json={"min_score": 0.5, "max_seeders": 3.0}) as made:
        assert (made.status, made.headers["Location"]) == (202, "/api/v1/jobs/1")
        assert await made.json() == {"id": "1", "new": True}
    job = await full.get("/jobs/1")
    assert (job["queue"], job["status"], job["payload"]) == (
        "reprocess",
        "pending",
        '{"max_seeders":3,"min_score":0.5}',
    )
    assert job["fingerprint"] == fingerprint("reprocess", job["payload"])
    (listed,) = (await full.get("/queues/reprocess/jobs", status="pending"))["items"]
    assert listed["fingerprint"] == job["fingerprint"]
    await full.ask("POST", "/sweep", 202)
    assert await full.ask("POST", "/sweep", 202) == {"id": "2", "new": False}
    names = [queue["name"] for queue in (await full.get("/queues"))["items"]]
    assert names == [REPROCESS, SWEEP]


async def test_a_queue_has_limits(full: ApiClient, admin: Admin) -> None:
    await admin.store.jobs.enqueue(SWEEP)
    (queue,) = (await full.get("/queues"))["items"]
    assert (queue["concurrency"], queue["priority"], queue["pending"]) == (None, None, 1)
    limits = {"concurrency": 2, "priority": -3}
    assert (await full.ask("PUT", "/queues/sweep/limits", json=limits)).items() >= limits.items()
    (entry, *_) = (await full.get("/audit"))["items"]
    assert (entry["operation"], entry["objects"][0]["after"]) == ("jobs.limit", {"concurrency": "2", "priority": "-3"})
    wrong = await full.wrong_fields("PUT", "/queues/sweep/limits", json={"priority": 11})
    assert wrong == ["body.priority"]
    assert (await full.ask("PUT", "/queues/sweep/limits", json={}))["priority"] is None


async def test_a_min_above_the_max_is_refused(full: ApiClient) -> None:
    response = await full.ask("POST", "/reprocess", 422, json={"min_seeders": 3, "max_seeders": 2})
    assert response["detail"].startswith("a minimum exceeds")
    wrong = await full.wrong_fields(
        "POST", "/reprocess", data=b'{"min_score": NaN}', headers={"Content-Type": "application/json"}
    )
    assert wrong == ["body.min_score"]


async def test_a_failed_job_runs_again(full: ApiClient, admin: Admin) -> None:
    jobs = admin.store.jobs
    await jobs.enqueue(SWEEP)
    (claimed,) = await jobs.claim({SWEEP: (1, 1)})
    await full.ask("POST", "/jobs/1/retry", 409)
    await jobs.finish([Result(claimed, "fatal", "no luck")])
    (failed,) = (await full.get("/queues/sweep/jobs", status="failed"))["items"]
    assert (failed["error"], failed["finished"]) == ("no luck", int(admin.clock.now))
    assert (await full.ask("POST", "/jobs/1/retry"))["status"] == "pending"


async def test_jobs_are_paged_and_deleted(full: ApiClient, admin: Admin) -> None:
    for number in range(5):
        await admin.store.jobs.enqueue(SWEEP, {"number": number})
    rows = await all_pages(full, "/queues/sweep/jobs", status="pending", limit=2)
    assert sorted(row["id"] for row in rows) == ["1", "2", "3", "4", "5"]
    assert await full.ask("DELETE", "/queues/sweep/jobs", params={"status": "failed"}) == {"deleted": 0}
    assert await full.ask("DELETE", "/queues/sweep/jobs", params={"status": "pending"}) == {"deleted": 5}
    wrong = await full.wrong_fields("DELETE", "/queues/sweep/jobs", params={"status": "running"})
    assert wrong == ["query.status"]


async def test_unknown_jobs_and_queues_are_not_found(full: ApiClient) -> None:
    await full.get("/jobs/1", 404)
    await full.ask("POST", "/jobs/1/retry", 404)
    await full.get("/queues/sweep/jobs", 404, status="failed")
    await full.ask("DELETE", "/queues/sweep/jobs", 404, params={"status": "failed"})
    assert await full.wrong_fields("GET", "/jobs/x:y") == ["path.id"]
    assert await full.wrong_fields("GET", "/queues/../jobs".replace("..", "A"), params={"status": "failed"}) == [
        "path.queue"
    ]
