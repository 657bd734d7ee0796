"""The admin side over real sockets and a real store."""

from tests.admin.conftest import Admin


async def test_probes_need_no_token(admin: Admin) -> None:
    async with admin.client() as client:
        assert (await client.get("/health")).status == 200
        assert (await client.get("/ready")).status == 200
        admin.problems.append("the store does not answer")
        answer = await client.get("/ready")
        assert (answer.status, await answer.text()) == (503, "the store does not answer\n")
        assert (await client.get("/health")).status == 200


async def test_a_token_lets_in(admin: Admin) -> None:
    async with admin.client() as nobody, admin.client("read") as reader, admin.browser("read") as browser:
        assert (await nobody.get("/api/v1/nothing")).status == 401
        assert (await nobody.get("/", allow_redirects=False)).headers["Location"] == "/sign-in"
        assert (await reader.get("/api/v1/nothing")).status == 404
        assert (await browser.get("/api/v1/nothing")).status == 404
