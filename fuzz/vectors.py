"""Requests of real clients, the seeds of fuzzing."""

import json
from functools import cache

from fuzz.corpus import ROOT

_VECTORS = ROOT / "tests" / "vectors"


@cache
def heads() -> tuple[bytes, ...]:
    """Complete request heads, as recorded."""
    recorded = json.loads((_VECTORS / "recorded.json").read_text())["requests"]
    return tuple(dict.fromkeys(request["head"].encode("latin-1") for request in recorded))


@cache
def queries() -> tuple[bytes, ...]:
    """Announce queries, ordered and escaped as nine clients do it."""
    written = json.loads((_VECTORS / "clients.json").read_text())["requests"]
    return tuple(request["target"].partition("?")[2].encode("latin-1") for request in written)
