"""Headers of every answer: what a browser may do with it."""

from aiohttp import web

from tracker.admin.cookies import came_by_tls

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "font-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not no-referrer: with it browsers send ``Origin: null`` along with our own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
TLS_ONLY = "max-age=15552000"
"""For half a year of this name alone: a name that was reached by TLS is not asked for without it."""
JSON_TYPES = frozenset({"application/json", "application/problem+json"})
JSON_FILE = 'attachment; filename="api.json"'
"""No browser shows it as a page, or saves it under a name of somebody's choosing."""


def add_headers(request: web.BaseRequest, response: web.StreamResponse) -> None:
    """To an answer that is about to be sent. Nothing is kept by browsers and proxies that does not say it may be."""
    response.headers.update(HEADERS)
    if came_by_tls(request):
        response.headers["Strict-Transport-Security"] = TLS_ONLY
    if response.content_type in JSON_TYPES:
        response.headers.setdefault("Content-Disposition", JSON_FILE)
    response.headers.setdefault("Cache-Control", "no-store")
    response.headers.popall("Server", None)
