"""The session cookie: a ``__Host-`` cookie over TLS, a plain one without TLS.

Over TLS the plain cookie is ignored. Another host of the same domain, or an attacker on a connection without TLS, could
set it (cookie tossing), and the user would work in the attacker's session.
"""

from ipaddress import ip_address

from aiohttp import web

COOKIE = "tracker_session"
SECURE_COOKIE = "__Host-tracker_session"
"""Name over TLS: browsers accept it only from this host and only over TLS."""


def cookie_of(request: web.Request) -> str:
    """The session secret that the browser sent; empty if none."""
    secret = request.cookies.get(SECURE_COOKIE)
    if not secret and not came_by_tls(request):
        secret = request.cookies.get(COOKIE)
    return secret or ""


def set_cookie(request: web.Request, response: web.Response, secret: str, seconds: int) -> None:
    secure = came_by_tls(request)
    response.set_cookie(
        SECURE_COOKIE if secure else COOKIE,
        secret,
        max_age=seconds,
        path="/",
        httponly=True,
        samesite="Strict",
        secure=secure,
    )


def delete_cookies(response: web.Response) -> None:
    for name, secure in ((COOKIE, False), (SECURE_COOKIE, True)):
        response.del_cookie(name, path="/", secure=secure, httponly=True, samesite="Strict")


def came_by_tls(request: web.BaseRequest) -> bool:
    """Whether the browser uses TLS, to a proxy. A client that forges it affects only its own cookie. Signs of TLS: the
    proxy's X-Forwarded-Proto, an https Origin, or Sec-Fetch-Site, which browsers send only over TLS and to loopback
    hosts."""
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
