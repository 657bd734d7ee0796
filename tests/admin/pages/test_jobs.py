"""The pages of jobs."""

import pytest
from pydantic import SecretStr

from tests.admin.conftest import Admin, Serve
from tests.admin.pages.page import Page, get, post_form
from tracker.settings.model import RedisSettings, Settings
from tracker.settings.site import ChangeSettings, SiteSettings
from tracker.store.changes.webhooks import webhook_id
from tracker.store.jobs.records import REPROCESS, SWEEP, Result
from tracker.store.users.site_rows import SyncState


async def failed_job(admin: Admin, error: str = "it broke") -> str:
    jobs = admin.store.jobs
    id = (await jobs.enqueue("q", {"torrent_id": "7"})).id
    (job,) = await jobs.claim({"q": (1, 1)})
    await jobs.finish([Result(job, "fatal", error)])
    return id


async def test_failed_jobs_are_shown_first(admin: Admin) -> None:
    await failed_job(admin)
    for number in range(60):
        await admin.store.jobs.enqueue("many", {"n": number})
    async with admin.browser() as browser:
        page = await get(browser, "/jobs")
        assert "it broke" in page.text
        page = await get(browser, "/jobs?queue=many&status=pending")
        assert "1–50 of 60" in page.text
        page = await get(browser, "/jobs?queue=many&status=pending&page=2")
        assert "51–60 of 60" in page.text


async def test_htmx_gets_the_lists_only(admin: Admin) -> None:
    await failed_job(admin)
    async with admin.browser(headers={"HX-Request": "true"}) as browser:
        page = await get(browser, "/jobs")
        assert not page.all("html")
        assert page.one("div", id="jobs").attributes["hx-get"] == "/jobs?queue=q&status=failed&page=1"


async def test_a_failed_job_is_shown_and_retried(admin: Admin) -> None:
    id = await failed_job(admin, "no <b>way</b>")
    async with admin.browser() as browser:
        page = await get(browser, f"/jobs/{id}")
        assert "no <b>way</b>" in page.text
        assert '"torrent_id": "7"' in page.text
        failed = await admin.store.jobs.get(id)
        assert failed is not None and failed.fingerprint in page.text
        page = await post_form(browser, f"/jobs/{id}/retry")
        assert "Job queued." in page.text
        job = await admin.store.jobs.get(id)
        assert job is not None and job.status == "pending"
        async with browser.post(f"/jobs/{id}/retry") as response:
            assert response.status == 409
        async with browser.post("/jobs/999/retry") as response:
            assert response.status == 404


async def test_deleting_jobs_needs_confirmation_and_affects_one_list(admin: Admin) -> None:
    await failed_job(admin)
    await admin.store.jobs.enqueue("q", {"torrent_id": "8"})
    async with admin.browser() as browser:
        page = await get(browser, "/jobs?queue=q&status=failed")
        assert "Delete all 1 failed jobs of q?" in page.text
        page = await post_form(browser, "/jobs/purge", queue="q", status="failed")
        assert "Jobs deleted." in page.text
        sizes = await admin.store.jobs.sizes("q")
        assert (sizes["failed"], sizes["pending"]) == (0, 1)
        for wrong in ({"queue": "q", "status": "running"}, {"queue": "<b>", "status": "failed"}, {}):
            async with browser.post("/jobs/purge", data=wrong) as response:
                assert response.status == 400


async def test_rescoring_and_sweeping_can_be_started(admin: Admin) -> None:
    async with admin.browser() as browser:
        assert "Sweep started." in (await post_form(browser, "/jobs/sweep")).text
        assert (
            "Rescoring started." in (await post_form(browser, "/jobs/reprocess", min_score="0.5", max_seeders="3")).text
        )
    (job,) = await admin.store.jobs.page(REPROCESS, "pending", 0, 10)
    assert job.payload == '{"max_seeders":3,"min_score":0.5}'
    assert (await admin.store.jobs.sizes(SWEEP))["pending"] == 1


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
async def test_an_invalid_filter_is_refused_with_an_error_at_the_form(admin: Admin, fields: dict[str, str]) -> None:
    async with admin.browser() as browser:
        async with browser.post("/jobs/reprocess", data=fields) as response:
            assert response.status == 422
            page = Page(await response.text())
    assert page.one("p", role="alert").text
    for name, value in fields.items():
        assert page.one("input", name=name).attributes["value"] == value
    assert await admin.store.jobs.queues() == []


async def test_webhooks_are_shown_without_their_urls(serve: Serve, prefix: str) -> None:
    urls = ("https://good.example/hunter2", "https://bad.example/hunter2", "https://new.example/hunter2")
    changes = ChangeSettings(
        max_entries=9,
        webhook_urls=tuple(map(SecretStr, urls)),
        webhook_secret=SecretStr("hunter2" * 3),
        webhook_secrets=(SecretStr("hunter2-" * 3), SecretStr("hunter2+" * 3)),
    )
    admin = await serve(Settings(redis=RedisSettings(prefix=prefix), changes=changes))
    webhooks = admin.store.webhooks
    for url in urls:
        await webhooks.hold(webhook_id(url), "token")
    await webhooks.hold(webhook_id(urls[0]), "token", {"delivered": 4321, "delivered_at": 9})
    await webhooks.hold(webhook_id(urls[1]), "token", {"failures": 3, "error": "status 500"})
    async with admin.browser() as browser:
        page = await get(browser, "/jobs")
    shown = page.one("section", id="webhooks").text
    for text in ("https://good.example", "delivering", "failing", "status 500, 3 times", "nothing delivered yet"):
        assert text in shown
    assert "hunter2" not in page.text


async def test_the_sync_of_the_sites_tables_is_shown(serve: Serve, prefix: str) -> None:
    site = SiteSettings(database=SecretStr("mysql://root:hunter2@localhost/site"))
    admin = await serve(Settings(redis=RedisSettings(prefix=prefix), site=site))
    async with admin.browser() as browser:
        page = await get(browser, "/jobs")
        assert "not started yet" in page.one("section", id="site").text
        state = SyncState(at=9, until=9, rows=4321, repaired=3, compared_at=9, error="no answer")
        await admin.store.site_rows.save_state(state)
        page = await get(browser, "/jobs")
    shown = page.one("section", id="site").text
    for text in ("failing", "no answer", "4,321", "3 repaired"):
        assert text in shown
    assert "hunter2" not in shown
