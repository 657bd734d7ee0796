"""The pages of jobs."""

import pytest

from tests.admin.conftest import Admin
from tests.admin.pages.page import Page, get, posted
from tracker.store.job import REPROCESS, SWEEP, Result


async def failed_job(admin: Admin, error: str = "it broke") -> str:
    jobs = admin.stores.jobs
    id = (await jobs.enqueue("q", {"torrent_id": "7"})).id
    (job,) = await jobs.claim({"q": (1, 1)})
    await jobs.finish([Result(job, "fatal", error)])
    return id


async def test_what_failed_is_shown_first(admin: Admin) -> None:
    await failed_job(admin)
    for number in range(60):
        await admin.stores.jobs.enqueue("many", {"n": number})
    async with admin.browser() as browser:
        page = await get(browser, "/jobs")
        assert "it broke" in page.text
        page = await get(browser, "/jobs?queue=many&status=pending")
        assert "1–50 of 60" in page.text
        page = await get(browser, "/jobs?queue=many&status=pending&page=2")
        assert "51–60 of 60" in page.text


async def test_htmx_gets_the_lists_alone(admin: Admin) -> None:
    await failed_job(admin)
    async with admin.browser(headers={"HX-Request": "true"}) as browser:
        page = await get(browser, "/jobs")
        assert not page.all("html")
        assert page.one("div", id="jobs").attributes["hx-get"] == "/jobs?queue=q&status=failed&page=1"


async def test_a_failed_job_is_shown_and_runs_again(admin: Admin) -> None:
    id = await failed_job(admin, "no <b>way</b>")
    async with admin.browser() as browser:
        page = await get(browser, f"/jobs/{id}")
        assert "no <b>way</b>" in page.text
        assert '"torrent_id": "7"' in page.text
        page = await posted(browser, f"/jobs/{id}/retry")
        assert "waits to run" in page.text
        job = await admin.stores.jobs.get(id)
        assert job is not None and job.status == "pending"
        async with browser.post(f"/jobs/{id}/retry") as answer:
            assert answer.status == 409
        async with browser.post("/jobs/999/retry") as answer:
            assert answer.status == 409


async def test_purging_asks_first_and_deletes_one_list(admin: Admin) -> None:
    await failed_job(admin)
    await admin.stores.jobs.enqueue("q", {"torrent_id": "8"})
    async with admin.browser() as browser:
        page = await get(browser, "/jobs?queue=q&status=failed")
        assert "Delete all 1 failed jobs of q?" in page.text
        page = await posted(browser, "/jobs/purge", queue="q", status="failed")
        assert "Those jobs are gone." in page.text
        sizes = await admin.stores.jobs.sizes("q")
        assert (sizes["failed"], sizes["pending"]) == (0, 1)
        for wrong in ({"queue": "q", "status": "running"}, {"queue": "<b>", "status": "failed"}, {}):
            async with browser.post("/jobs/purge", data=wrong) as answer:
                assert answer.status == 400


async def test_torrents_are_scored_again_and_swarms_swept(admin: Admin) -> None:
    async with admin.browser() as browser:
        assert "on its way" in (await posted(browser, "/jobs/sweep")).text
        assert (
            "on its way" in (await posted(browser, "/jobs/reprocess", min_score="0.5", max_seeders="3")).text
        )
    (job,) = await admin.stores.jobs.page(REPROCESS, "pending", 0, 10)
    assert job.payload == '{"max_seeders":3,"min_score":0.5}'
    assert (await admin.stores.jobs.sizes(SWEEP))["pending"] == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"min_score": "much"},
        {"min_score": "nan"},
        {"min_score": "2", "max_score": "1"},
        {"min_seeders": "1.5"},
        {"min_seeders": "-1"},
        {"max_seeders": "9" * 20},
    ],
)
async def test_a_filter_that_is_none_is_refused_beside_it(admin: Admin, fields: dict[str, str]) -> None:
    async with admin.browser() as browser:
        async with browser.post("/jobs/reprocess", data=fields) as answer:
            assert answer.status == 422
            page = Page(await answer.text())
    assert page.one("p", role="alert").text
    for name, value in fields.items():
        assert page.one("input", name=name).attributes["value"] == value
    assert await admin.stores.jobs.queues() == []
