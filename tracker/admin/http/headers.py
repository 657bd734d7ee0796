"""Security headers of every response."""

from aiohttp import web

from tracker.admin.http.cookies import came_by_tls

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
    # Not no-referrer: with it browsers send ``Origin: null`` with the forms of this port.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
TLS_ONLY = "max-age=15552000"
"""Half a year, without subdomains."""
JSON_TYPES = frozenset({"application/json", "application/problem+json"})
JSON_FILE = 'attachment; filename="api.json"'
"""Browsers neither render JSON as a page nor save it under a name from the URL."""


def add_headers(request: web.BaseRequest, response: web.StreamResponse) -> None:
    """Add the headers to a response about to be sent. Responses without Cache-Control are not cached."""
    response.headers.update(HEADERS)
    if came_by_tls(request):
        response.headers["Strict-Transport-Security"] = TLS_ONLY
    if response.content_type in JSON_TYPES:
        response.headers.setdefault("Content-Disposition", JSON_FILE)
    response.headers.setdefault("Cache-Control", "no-store")
    response.headers.popall("Server", None)
