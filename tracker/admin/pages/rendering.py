"""From a template to an answer: what every page is given, and how a form is answered.

A form is answered by a redirect to a page that shows it done; ``notice`` names one of NOTICES there, never free text,
so that no link can put words into the page. Where htmx asks, the same redirect is followed by the browser.
"""

import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple
from urllib.parse import urlencode

import aiohttp_jinja2
import jinja2
from aiohttp import web

from tracker import __version__
from tracker.admin.auth import IDENTITY
from tracker.admin.pages.formats import FILTERS

STATIC = files("tracker.admin") / "static"


class Link(NamedTuple):
    """A place in the navigation; ``icon`` names one of parts/icons.html. Readers are not led to what is ``full_only``."""

    href: str
    label: str
    icon: str
    full_only: bool = False


NAVIGATION: tuple[tuple[str, tuple[Link, ...]], ...] = (
    (
        "Watch",
        (
            Link("/", "Overview", "pulse"),
            Link("/torrents", "Torrents", "swarm"),
            Link("/world", "World", "globe"),
            Link("/users", "Users", "user"),
        ),
    ),
    ("Work", (Link("/jobs", "Jobs", "stack"), Link("/clients", "Clients", "plug"))),
    (
        "System",
        (
            Link("/settings", "Settings", "sliders"),
            Link("/doctor", "Doctor", "check"),
            Link("/tokens", "Tokens", "key", full_only=True),
            Link("/api", "API", "braces"),
        ),
    ),
)

NOTICES: dict[str, str] = {
    "saved": "Saved.",
    "added": "Added.",
    "removed": "Removed.",
    "forgiven": "Forgiven.",
    "retried": "The job waits to run.",
    "purged": "Those jobs are gone.",
    "reprocess": "A walk through the torrents is on its way.",
    "sweep": "A sweep is on its way.",
    "revoked": "The token is revoked: whoever uses it is signed out.",
}
"""What a page may say about what was just done, by the word in its address."""


def setup_templates(app: web.Application) -> None:
    """Templates for ``app``."""
    app[aiohttp_jinja2.APP_KEY] = _environment()


@cache
def _environment() -> jinja2.Environment:
    """Made once in a process, for templates take their time to compile: everything is escaped, and a name that is not
    there is an error."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tracker.admin", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(FILTERS)
    environment.globals.update(version=__version__, navigation=NAVIGATION, static=static)
    return environment


def _surroundings(request: web.Request) -> dict[str, Any]:
    """What base.html needs on every page."""
    identity = request.get(IDENTITY)
    return {
        "identity": identity,
        "csrf": identity.csrf if identity is not None else "",
        "may_write": identity is not None and identity.scope == "full",
        "path": request.path,
        "notice": NOTICES.get(request.query.get("notice", ""), ""),
    }


@cache
def static(name: str) -> str:
    """The address of a static file, different whenever its content is."""
    digest = hashlib.sha256(STATIC.joinpath(*name.split("/")).read_bytes()).hexdigest()
    return f"/static/{name}?v={digest[:12]}"


def render(
    request: web.Request, template: str, context: Mapping[str, Any], *, status: int = 200
) -> web.Response:
    """A page, or a part of one."""
    # Not aiohttp_jinja2's context processors: they keep the context in the request under a name that aiohttp warns of.
    context = {**_surroundings(request), **context}
    response = aiohttp_jinja2.render_template(template, request, context, status=status)
    response.headers["Vary"] = "HX-Request"
    return response


def wants_part(request: web.Request) -> bool:
    """Whether htmx asks for a part of the page (and not for a page to go back to)."""
    return request.headers.get("HX-Request") == "true" and "HX-History-Restore-Request" not in request.headers


def done(request: web.Request, path: str, notice: str = "", **query: str) -> web.Response:
    """The answer to a form that worked: on to ``path``. ``notice`` is a key of NOTICES."""
    if notice:
        assert notice in NOTICES, notice
        query["notice"] = notice
    location = f"{path}?{urlencode(query)}" if query else path
    if request.headers.get("HX-Request") == "true":
        return web.Response(status=204, headers={"HX-Redirect": location})
    return web.Response(status=303, headers={"Location": location})
