"""What goes wrong, as a page for people: programs get problem details instead."""

import orjson
from aiohttp import web

from tracker.admin.pages.rendering import render
from tracker.admin.problems import CONTENT_TYPE, Handler

_FOR_PROGRAMS = ("/api/", "/metrics", "/live", "/figures/")


@web.middleware
async def shown_as_pages(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Outermost: problem details that a browser would show as they are become a page that says the same."""
    answer = await handler(request)
    if not (isinstance(answer, web.Response) and answer.content_type == CONTENT_TYPE and _by_person(request)):
        return answer
    assert isinstance(answer.body, bytes)
    page = render(request, "mistake.html", {"problem": orjson.loads(answer.body)}, status=answer.status)
    for name in ("Retry-After", "Allow", "WWW-Authenticate"):
        if name in answer.headers:
            page.headers[name] = answer.headers[name]
    return page


def _by_person(request: web.Request) -> bool:
    """Whether a browser goes to this page, rather than a script in one, or a program."""
    asked_for = request.headers.get("Accept", "")
    return (
        "text/html" in asked_for
        and "HX-Request" not in request.headers
        and not request.path.startswith(_FOR_PROGRAMS)
    )
