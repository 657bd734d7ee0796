"""Who is asking, and what that lets through. Everything is refused that is not allowed here, also what does not exist.

A program sends a token (``Authorization: Bearer …``); a browser has a session, whose cookie the sign-in set. Reading
needs the scope ``read``, every other method ``full``. A cookie comes along whoever made the browser send it, so with one
a change also needs the session's CSRF token and the origin of a page of ours.
"""

import asyncio
import hmac
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import structlog
from aiohttp import web
from aiohttp.typedefs import Middleware

from tracker.admin.attempts import Attempts
from tracker.admin.cookies import cookie_of
from tracker.admin.hosts import SAFE_METHODS, came_from_a_page
from tracker.admin.posted import MULTIPART, URL_ENCODED, posted
from tracker.admin.problems import Handler, Problem, asked_for
from tracker.admin.scrapers import Scrapers
from tracker.errors import StoreAway
from tracker.store.tokens import Tokens

OPEN = frozenset({"/health", "/ready", "/sign-in", "/static/{path}"})
"""The routes that need no token: what they show is the same for everybody, and no figure of the tracker."""
ANY_SCOPE = frozenset({"/sign-out"})
"""The routes that change something, and are allowed with every scope."""
CSRF_HEADER = "X-CSRF-Token"
CSRF_FIELD = "csrf"
SIGN_IN = "/sign-in"
METRICS = "/metrics"

_CHECKS_AT_ONCE = 16
"""Credentials looked up at a time, so that bad ones never take all lines to the store."""


log = structlog.get_logger("tracker.admin")


@dataclass(frozen=True, slots=True)
class Identity:
    """Who is asking. ``csrf`` is what a page's forms must send; empty where a token was sent with the request itself."""

    name: str
    scope: Literal["read", "full"]
    csrf: str = ""


IDENTITY = web.RequestKey("identity", Identity)


def require_full(identity: Identity) -> None:
    """Raises Problem (403) for whoever may only read."""
    if identity.scope != "full":
        raise Problem(403, detail="this needs a token of scope full: yours may only read")


class Access:
    """Tells who is asking, and lets through what they may do."""

    def __init__(self, tokens: Tokens, clock: Callable[[], float]) -> None:
        self.attempts = Attempts(clock)
        self._scrapers: Scrapers[Identity] = Scrapers(clock)
        self._tokens = tokens
        self._checks = asyncio.Semaphore(_CHECKS_AT_ONCE)

    async def identify(self, request: web.Request) -> Identity | None:
        """Who is asking, as of this moment; None for nobody we know. An Authorization header outweighs a cookie."""
        given = request.headers.getall("Authorization", [])
        secret = cookie_of(request)
        async with self._checks:
            if given:
                scheme, _, text = given[0].partition(" ")
                if len(given) > 1 or scheme.lower() != "bearer":
                    return None
                token = await self._tokens.verify(text.strip())
                return Identity(token.name, token.scope) if token else None
            session = await self._tokens.session(secret) if secret else None
            return Identity(session.name, session.scope, session.csrf) if session else None

    def note_failure(self, request: web.Request) -> float:
        """Somebody tried and was nobody: 0.0, or the seconds to wait when that happened too often."""
        wait = self.attempts.failed(request.remote or "")
        if not wait:
            log.warning(
                "refused at the admin port", address=request.remote or "unix", what=asked_for(request)
            )
        return wait

    async def admit(self, request: web.Request) -> None:
        """Puts the identity into the request; raises what refuses it."""
        # By the route that was found, not by the text of the path: the two may differ in escapes and dots.
        resource = request.match_info.route.resource
        route = resource.canonical if resource is not None else ""
        if route in OPEN:
            return
        identity = await self._known(request, route)
        if identity is None:
            raise self._unknown(request)
        if request.method not in SAFE_METHODS:
            if route not in ANY_SCOPE:
                require_full(identity)
            if identity.csrf:
                await _check_csrf(request, identity.csrf)
        request[IDENTITY] = identity

    async def _known(self, request: web.Request, route: str) -> Identity | None:
        """Who is asking. The figures of the tracker are shown without the store too, to whoever read them before."""
        secret = request.headers.get("Authorization", "") if route == METRICS else ""
        if not secret or request.method not in SAFE_METHODS:
            return await self.identify(request)
        try:
            identity = await self.identify(request)
        except StoreAway:
            identity = self._scrapers.recall(secret)
            if identity is None:
                raise
        else:
            self._scrapers.note(secret, identity)
        return identity

    def _unknown(self, request: web.Request) -> Exception:
        """A page sends a browser to the sign-in, everything else says what is missing."""
        page = not request.path.startswith(("/api/", "/metrics")) and request.path != "/api"
        streamed = "text/event-stream" in request.headers.get("Accept", "")
        tried, part = "Authorization" in request.headers, "HX-Request" in request.headers
        if page and request.method in SAFE_METHODS and not (tried or part or streamed):
            return web.HTTPSeeOther(SIGN_IN)
        if tried and (wait := self.note_failure(request)):
            return too_many(wait)
        headers = {"WWW-Authenticate": "Bearer"}
        if part:
            headers["HX-Redirect"] = SIGN_IN
        detail = (
            "this token is unknown or revoked"
            if tried
            else "sign in, or send a token as Authorization: Bearer …"
        )
        return Problem(401, detail=detail, headers=headers)


ACCESS = web.AppKey("access", Access)


def admitted(access: Access) -> Middleware:
    @web.middleware
    async def admit(request: web.Request, handler: Handler) -> web.StreamResponse:
        await access.admit(request)
        answer = await handler(request)
        identity = request.get(IDENTITY)
        if identity is not None and request.method not in SAFE_METHODS:
            # The path of what went well names what was changed: hashes and ids, which handlers have checked.
            what = f"{request.method} {request.path}" if answer.status < 400 else asked_for(request)
            log.info("changed by hand", by=identity.name, what=what, status=answer.status)
        return answer

    return admit


async def still_signed_in(request: web.Request) -> bool:
    """Whether who asked would still be let in: for answers that go on for long, to be asked now and then."""
    return await request.app[ACCESS].identify(request) is not None


def too_many(wait: float) -> Problem:
    """``wait`` is in seconds."""
    return Problem(
        429, detail="too many failed attempts", headers={"Retry-After": str(max(1, math.ceil(wait)))}
    )


async def _check_csrf(request: web.Request, expected: str) -> None:
    if not came_from_a_page(request):
        raise Problem(403, detail="a change by a signed-in browser must say from which page it came")
    given = request.headers.get(CSRF_HEADER)
    if given is None and request.content_type in (URL_ENCODED, MULTIPART):
        field = (await posted(request)).get(CSRF_FIELD)
        given = field if isinstance(field, str) else None
    if given is None or not hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode()):
        raise Problem(403, detail="the CSRF token is missing or wrong: load the page again")
