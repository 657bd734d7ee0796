"""Errors are pages for browsers, and problem details for programs."""

from tests.admin.conftest import Admin
from tests.admin.pages.page import Page


async def test_an_unknown_page_has_an_error_page(admin: Admin) -> None:
    async with admin.browser() as browser:
        async with browser.get("/nowhere") as response:
            assert (response.status, response.content_type) == (404, "text/html")
            page = Page(await response.text())
        assert "page not found" in page.text
        assert page.all("nav")
        assert not page.inline()


async def test_programs_and_scripts_get_problem_details(admin: Admin) -> None:
    async with admin.browser() as browser, admin.client("read") as program:
        for path, headers in (
            ("/api/v1/nothing", {}),
            ("/jobs/999", {"HX-Request": "true"}),
            ("/history/nothing.json", {}),
        ):
            async with browser.get(path, headers=headers) as response:
                assert (response.status, response.content_type) == (404, "application/problem+json"), path
        async with program.get("/jobs/999") as response:
            assert response.content_type == "application/problem+json"


async def test_a_form_without_csrf_token_gets_an_error_page(admin: Admin) -> None:
    async with admin.browser() as browser:
        async with browser.post("/jobs/sweep", headers={"X-CSRF-Token": "wrong"}) as response:
            assert response.status == 403
            assert "CSRF" in Page(await response.text()).text
    assert await admin.store.jobs.queues() == []


async def test_error_pages_without_session_have_no_navigation(admin: Admin) -> None:
    async with admin.client(headers={"Accept": "text/html", "Authorization": "Bearer nonsense"}) as client:
        async with client.get("/jobs") as response:
            assert response.status == 401
            assert response.headers["WWW-Authenticate"] == "Bearer"
            assert not Page(await response.text()).all("nav")
