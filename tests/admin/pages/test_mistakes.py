"""What goes wrong is a page for people, and problem details for programs."""

from tests.admin.conftest import Admin
from tests.admin.pages.page import Page


async def test_a_page_that_is_not_there(admin: Admin) -> None:
    async with admin.browser() as browser:
        async with browser.get("/nowhere") as answer:
            assert (answer.status, answer.content_type) == (404, "text/html")
            page = Page(await answer.text())
        assert "nothing at this address" in page.text
        assert page.all("nav")
        assert not page.inline()


async def test_programs_and_scripts_get_problem_details(admin: Admin) -> None:
    async with admin.browser() as browser, admin.client("read") as program:
        for path, headers in (
            ("/api/v1/nothing", {}),
            ("/jobs/999", {"HX-Request": "true"}),
            ("/figures/nothing.json", {}),
        ):
            async with browser.get(path, headers=headers) as answer:
                assert (answer.status, answer.content_type) == (404, "application/problem+json"), path
        async with program.get("/jobs/999") as answer:
            assert answer.content_type == "application/problem+json"


async def test_a_form_without_its_token_is_refused_with_a_page(admin: Admin) -> None:
    async with admin.browser() as browser:
        async with browser.post("/jobs/sweep", headers={"X-CSRF-Token": "wrong"}) as answer:
            assert answer.status == 403
            assert "CSRF" in Page(await answer.text()).text
    assert await admin.stores.jobs.queues() == []


async def test_one_that_nobody_signed_in_for_shows_no_navigation(admin: Admin) -> None:
    async with admin.client(headers={"Accept": "text/html", "Authorization": "Bearer nonsense"}) as client:
        async with client.get("/jobs") as answer:
            assert answer.status == 401
            assert answer.headers["WWW-Authenticate"] == "Bearer"
            assert not Page(await answer.text()).all("nav")
