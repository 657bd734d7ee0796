"""Replies of the claimants' listener, and the status of each refusal."""

import math
from collections.abc import Mapping

import orjson
from aiohttp import web

from tracker.core.work import Reason, Refused

STATUSES: Mapping[Reason, int] = {
    "malformed": 400,
    "domains": 400,
    "no passkey": 401,
    "blocked": 403,
    "no project": 404,
    "unknown item": 404,
    "budget": 404,
    "empty": 404,
    "unverified": 409,
    "lost": 410,
    "rate": 429,
    "outdated": 455,
}
PHRASES = {420: "Rate Limited", 455: "Client Out Of Date"}
"""Statuses without a standard phrase."""
PRIVATE = "private, no-store"


def json_reply(row: object, status: int = 200) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(row), content_type="application/json")


def refusal(error: Refused, *, legacy_status: bool) -> web.Response:
    """Refusals of a claim have no body, as in the original protocol."""
    if error.reason == "unverified":
        return json_reply({"missing_seconds": math.ceil(error.seconds)}, 409)
    status = STATUSES[error.reason]
    if status == 429 and legacy_status:
        status = 420
    reply = web.Response(status=status, reason=PHRASES.get(status), text=f"{error.text}\n" if error.text else "")
    if error.reason == "rate":
        reply.headers["Retry-After"] = str(max(1, math.ceil(error.seconds)))
    if status == 401:
        reply.headers["WWW-Authenticate"] = "Bearer"
    return reply
