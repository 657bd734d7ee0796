"""/static/: the files of the dashboard, served from memory. They are read once, at startup. A request path is only a
key of that table, so it cannot reach other files."""

import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from aiohttp import web

from tracker.admin.http.problems import Problem

_FOLDER = Path(__file__).parent.parent / "static"
_FOR_EVER = "public, max-age=31536000, immutable"
_ASK_AGAIN = "no-cache"
_TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".svg": "image/svg+xml", ".woff2": "font/woff2"}
_GAINS_FROM_GZIP = ("text/", "image/svg", "application/json")
_MIN_GZIPPED_BYTES = 1024


@dataclass(frozen=True, slots=True)
class StaticFile:
    content: bytes
    gzipped: bytes | None
    content_type: str
    etag: str


@cache
def read_all() -> dict[str, StaticFile]:
    """All files in static/, by relative path."""
    found = {}
    for path in filter(Path.is_file, _FOLDER.rglob("*")):
        content = path.read_bytes()
        kind = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        worth = kind.startswith(_GAINS_FROM_GZIP) and len(content) >= _MIN_GZIPPED_BYTES
        gzipped = gzip.compress(content, mtime=0) if worth else None
        etag = hashlib.sha256(content).hexdigest()[:20]
        found[path.relative_to(_FOLDER).as_posix()] = StaticFile(content, gzipped, kind, etag)
    return found


def routes() -> list[web.AbstractRouteDef]:
    found = read_all()

    async def serve(request: web.Request) -> web.Response:
        file = found.get(request.match_info["path"])
        if file is None:
            raise Problem(404, detail="unknown file")
        response = web.Response()
        response.headers["Cache-Control"] = _FOR_EVER if request.query.get("v") else _ASK_AGAIN
        response.headers["Vary"] = "Accept-Encoding"
        response.etag = file.etag
        if any(tag.value in (file.etag, "*") for tag in request.if_none_match or ()):
            response.set_status(304)
            return response
        response.content_type = file.content_type
        if response.content_type.startswith("text/"):
            response.charset = "utf-8"
        response.body = file.content
        if file.gzipped is not None and "gzip" in request.headers.get("Accept-Encoding", ""):
            response.headers["Content-Encoding"] = "gzip"
            response.body = file.gzipped
        return response

    return [web.get("/static/{path:.+}", serve)]
