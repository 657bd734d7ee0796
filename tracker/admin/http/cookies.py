"""The cookie of a signed-in browser: one for TLS, which browsers take from nobody else, and a plain one without.

Where TLS is spoken the plain one counts for nothing. Another host of the same domain, and whoever sits on a line without
TLS, can put a cookie of that name into a browser (cookie tossing): its owner would work in a session of theirs.
"""

from ipaddress import ip_address

from aiohttp import web

COOKIE = "tracker_session"
SECURE_COOKIE = "__Host-tracker_session"
"""Its name over TLS: browsers take this one from no other host, and from nobody without TLS."""


def cookie_of(request: web.Request) -> str:
    """The secret of the session that the browser says it has, if any."""
    secret = request.cookies.get(SECURE_COOKIE)
    if not secret and not came_by_tls(request):
        secret = request.cookies.get(COOKIE)
    return secret or ""


def set_cookie(request: web.Request, answer: web.Response, secret: str, seconds: int) -> None:
    secure = came_by_tls(request)
    answer.set_cookie(
        SECURE_COOKIE if secure else COOKIE,
        secret,
        max_age=seconds,
        path="/",
        httponly=True,
        samesite="Strict",
        secure=secure,
    )


def delete_cookies(answer: web.Response) -> None:
    for name, secure in ((COOKIE, False), (SECURE_COOKIE, True)):
        answer.del_cookie(name, path="/", secure=secure, httponly=True, samesite="Strict")


def came_by_tls(request: web.BaseRequest) -> bool:
    """Whether the browser speaks TLS, to a proxy. Who lies about it in their own request harms only their own cookie.

    The proxy says so; or the browser does, by where its form came from, or by telling of its sites at all (Sec-Fetch-Site):
    that is for TLS and for this machine only.
    """
    headers = request.headers
    forwarded = headers.get("X-Forwarded-Proto", "").partition(",")[0].strip().lower()
    if forwarded == "https" or headers.get("Origin", "").startswith("https://"):
        return True
    return "Sec-Fetch-Site" in headers and not _is_this_machine(headers.get("Host", ""))


def _is_this_machine(authority: str) -> bool:
    host = (authority.partition("]")[0] if authority[:1] == "[" else authority.partition(":")[0]).strip("[")
    host = host.lower().removesuffix(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
