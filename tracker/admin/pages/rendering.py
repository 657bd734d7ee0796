"""Renders templates, and answers forms with redirects.

A successful form redirects to a page that shows the result. Its query names one of NOTICES, never free text, so that a
link cannot put text into the page. htmx gets the same redirect in a header.

Filters format numbers, times and names. External input stays text, which templates escape; only elements built here are
markup.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode

import aiohttp_jinja2
import jinja2
from aiohttp import web
from markupsafe import Markup, escape
from multidict import MultiDict

from tracker import __version__
from tracker.admin.auth.auth import IDENTITY, Rule, add_rule
from tracker.admin.context import CONTEXT, AdminContext, announce_urls
from tracker.admin.http.static_files import read_all
from tracker.admin.pages.forms import Form, read_form
from tracker.errors import ClientError, NotFound
from tracker.geoip import COUNTRY_NAMES
from tracker.names import size_text
from tracker.operations.torrents import state_of
from tracker.store.access.tokens import Role
from tracker.store.schema.multipliers import factors, rules_text

Shown = TypeVar("Shown", bound=Callable[..., Awaitable[web.Response | Mapping[str, Any]]])


def get(path: str, template: str = "", *, part: str = "", role: Role = "read") -> Callable[[Shown], Shown]:
    """Declares a method of ``Pages`` as the handler of a path. It returns variables of the template, or a response.
    ``part``: the template that htmx gets."""
    return _declared("GET", path, Rule(role), (template, part))


def post(path: str, operation: str, *, role: Role = "operate", errors_on: str = "") -> Callable[[Shown], Shown]:
    """The same of a form, which the method gets too. ``operation``: its name in the audit log; empty: no change.
    ``errors_on``: the page that shows the text of a ClientError, and variables that the method returns. NotFound is
    passed on, and becomes status 404."""
    return _declared("POST", path, Rule(role, operation), errors_on)


def _declared(method: str, path: str, rule: Rule, page: str | tuple[str, str]) -> Callable[[Shown], Shown]:
    add_rule(method, path, rule)

    def declare(handler: Shown) -> Shown:
        vars(handler).setdefault("routes", []).append((method, path, page))
        return handler

    return declare


class Pages:
    def __init__(self, context: AdminContext) -> None:
        self._context = context
        self._store = context.store
        self._clock = context.clock

    def routes(self) -> list[web.RouteDef]:
        """In the order of the class, which decides between paths that match both."""
        return [
            web.get(path, partial(self._get, name))
            if method == "GET"
            else web.post(path, partial(self._post, name, page))
            for name, handler in vars(self.__class__).items()
            for method, path, page in getattr(handler, "routes", ())
        ]

    async def _get(self, name: str, request: web.Request) -> web.Response:
        return self._response(name, request, await getattr(self, name)(request))

    async def _post(self, name: str, page: str, request: web.Request) -> web.Response:
        form = await read_form(request)
        try:
            found = await getattr(self, name)(request, form)
        except NotFound:
            raise
        except ClientError as error:
            if not page:
                raise
            return self._response(page, request, await getattr(self, page)(request), form, error.text)
        return self._response(page, request, found, form)

    def _response(
        self, page: str, request: web.Request, found: Any, given: Form | None = None, error: str = ""
    ) -> web.Response:
        """``given``: the form that was sent, which the page has as a variable; ``error``: why it was refused."""
        if isinstance(found, web.Response):
            return found
        ((_, _, (template, part)),) = getattr(self, page).routes
        if given is None and part and wants_part(request):
            template = part
        return render(request, template, {"given": given or Form(MultiDict()), **found}, error=error)


class Link(NamedTuple):
    """A navigation link. ``icon``: a name of parts/icons.html; ``admin_only``: hidden for the other roles."""

    href: str
    label: str
    icon: str
    admin_only: bool = False


NAVIGATION: Mapping[str, tuple[Link, ...]] = {
    "Monitoring": (
        Link("/", "Overview", "pulse"),
        Link("/history", "History", "chart"),
        Link("/torrents", "Torrents", "swarm"),
        Link("/world", "World", "globe"),
        Link("/users", "Users", "user"),
        Link("/work", "Work", "swarm"),
        Link("/dht", "DHT", "nodes"),
    ),
    "Operations": (Link("/jobs", "Jobs", "stack"), Link("/clients", "Clients", "plug")),
    "System": (
        Link("/settings", "Settings", "sliders"),
        Link("/doctor", "Doctor", "check"),
        Link("/tokens", "Tokens", "key", admin_only=True),
        Link("/audit", "Audit log", "list", admin_only=True),
        Link("/api", "API", "braces"),
    ),
}

NOTICES: dict[str, str] = {
    "saved": "Saved.",
    "added": "Added.",
    "removed": "Removed.",
    "changed": "Changed.",
    "unselected": "Nothing was selected.",
    "forgiven": "Forgiven.",
    "retried": "Job queued.",
    "purged": "Jobs deleted.",
    "reprocess": "Rescoring started.",
    "sweep": "Sweep started.",
    "places": "The GeoIP database was updated.",
    "places_newest": "The GeoIP database is the newest already.",
    "lookup": "Lookup in the DHT queued. The result appears here within a minute.",
    "released": "Claims released.",
    "revoked": "Token revoked. Everyone signed in with it is signed out.",
}
"""The notices of pages, by the value of ``notice`` in the query."""


NOTHING = "–"
_SPANS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))


def number(value: float | None) -> str:
    """``12345`` -> 12,345; fractions have two digits."""
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"


def rate(value: float | None) -> str:
    """A rate per second; small rates have two decimals."""
    if value is None:
        return NOTHING
    if value == 0 or value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def size(count: float | None) -> str:
    return NOTHING if count is None else size_text(count)


def percent(part: float, whole: float) -> str:
    """``part`` of ``whole``; small shares are not rounded to 0."""
    if not whole:
        return NOTHING
    share = 100 * part / whole
    return "< 0.1 %" if 0 < share < 0.1 else f"{share:.1f} %"


def milliseconds(seconds: float | None) -> str:
    if seconds is None:
        return NOTHING
    value = seconds * 1000
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.2g} ms" if value < 10 else f"{value:.1f} ms"


def duration(seconds: float | None) -> str:
    """The two largest units: ``2 h 5 min``."""
    if seconds is None:
        return NOTHING
    left, words = max(0, int(seconds)), []
    for unit, length in _SPANS:
        if left >= length:
            words.append(f"{left // length} {unit}")
            left %= length
        elif words:
            break
    return " ".join(words[:2]) or "0 s"


def prose(text: str) -> Markup:
    """Text with backticks as code; everything is escaped."""
    parts = text.split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if index % 2 else escape(part) for index, part in enumerate(parts)
    )


def clock(at: float) -> str:
    """The time of the day of an epoch time."""
    then = _utc(at)
    return NOTHING if then is None else then.strftime("%H:%M UTC")


def moment(at: float | None) -> Markup | str:
    """An epoch time in UTC, as a ``time`` element."""
    then = _utc(at)
    if then is None:
        return NOTHING
    return Markup('<time datetime="{}">{}</time>').format(then.isoformat(), then.strftime("%Y-%m-%d %H:%M:%S UTC"))


def input_time(at: float | None) -> str:
    """An epoch time in UTC, as the value of an input of type datetime-local; empty for none."""
    then = _utc(at)
    return "" if then is None else then.strftime("%Y-%m-%dT%H:%M:%S")


def ago(at: float | None, now: float | None = None) -> Markup | str:
    """The distance to an epoch time, such as ``5 min ago``; the time itself is the tooltip."""
    then = _utc(at)
    if then is None or at is None:
        return NOTHING
    seconds = (time.time() if now is None else now) - at
    far = next((f"{abs(seconds) / length:.0f} {unit}" for unit, length in _SPANS if abs(seconds) >= length), "")
    text = "now" if not far else f"{far} ago" if seconds > 0 else f"in {far}"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        then.isoformat(), then.strftime("%Y-%m-%d %H:%M:%S UTC"), text
    )


def _utc(at: float | None) -> datetime | None:
    if not at:
        return None
    try:
        return datetime.fromtimestamp(at, UTC)
    except (OverflowError, OSError, ValueError):  # written by another program
        return None


def ratio(uploaded: int, downloaded: int) -> str:
    if downloaded:
        return f"{uploaded / downloaded:,.2f}"
    return "∞" if uploaded else "–"


def country_name(code: str) -> str:
    """``GB`` -> ``United Kingdom``; an unknown code is returned unchanged."""
    return COUNTRY_NAMES.get(code, code)


_FILTERS = (number, rate, size, percent, milliseconds, duration, prose, moment, clock, ago, input_time)


@cache
def template_environment() -> jinja2.Environment:
    """Cached, because templates are slow to compile. Everything is escaped; an undefined name is an error."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tracker.admin", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update({each.__name__: each for each in _FILTERS})
    environment.filters["factors"] = lambda both, now: factors(both[0], both[1], now)
    environment.globals.update(version=__version__, navigation=NAVIGATION, static=static)
    environment.globals.update(ratio=ratio, country_name=country_name, state_of=state_of, rules_text=rules_text)
    return environment


def static(name: str) -> str:
    """The URL of a static file, with a hash of its content."""
    return f"/static/{name}?v={read_all()[name].etag[:12]}"


def render(
    request: web.Request, template: str, variables: Mapping[str, Any], *, status: int = 200, error: str = ""
) -> web.Response:
    """A page, or a part of one. ``error``: why its form was refused, which it shows with status 422."""
    identity, context = request.get(IDENTITY), request.app[CONTEXT]
    places = context.places.describe()
    # No context processors of aiohttp_jinja2: they store the context under a request key that aiohttp warns about.
    variables = {
        "identity": identity,
        "csrf": identity.csrf if identity is not None else "",
        "may_write": identity is not None and identity.may("operate"),
        "may_administer": identity is not None and identity.may("admin"),
        "path": request.path,
        "notice": NOTICES.get(request.query.get("notice", ""), ""),
        # The licence of the GeoIP database may ask for an attribution.
        "places_type": places.database_type if places else "",
        "store_notices": context.store.shards.notices(),
        "settings": context.settings,
        "accounts": context.settings.users.private,
        "announce_urls": announce_urls(context, request.headers.get("Host", "")),
        "now": context.clock(),
        "error": error,
        **variables,
    }
    response = aiohttp_jinja2.render_template(template, request, variables, status=422 if error else status)
    response.headers["Vary"] = "HX-Request"
    return response


def wants_part(request: web.Request) -> bool:
    """Whether htmx requests a part of the page, and not a page of its history."""
    return request.headers.get("HX-Request") == "true" and "HX-History-Restore-Request" not in request.headers


def done(request: web.Request, path: str, notice: str = "", **query: str) -> web.Response:
    """A redirect to ``path``, perhaps with a query, after a successful form. ``notice``: a key of NOTICES."""
    if notice:
        assert notice in NOTICES, notice
        query["notice"] = notice
    separator = "&" if "?" in path else "?"
    location = f"{path}{separator}{urlencode(query)}" if query else path
    if request.headers.get("HX-Request") == "true":
        return web.Response(status=204, headers={"HX-Redirect": location})
    return web.Response(status=303, headers={"Location": location})
