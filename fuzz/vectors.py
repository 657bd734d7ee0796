"""Requests of real clients, which are what fuzzing begins with."""

import json
from functools import cache

from fuzz.corpus import ROOT

_VECTORS = ROOT / "tests" / "vectors"


@cache
def heads() -> tuple[bytes, ...]:
    """Whole heads of requests, as they came."""
    recorded = json.loads((_VECTORS / "recorded.json").read_text())["requests"]
    return tuple(dict.fromkeys(request["head"].encode("latin-1") for request in recorded))


@cache
def queries() -> tuple[bytes, ...]:
    """Queries of announces, as nine clients order and escape them."""
    written = json.loads((_VECTORS / "clients.json").read_text())["requests"]
    return tuple(request["target"].partition("?")[2].encode("latin-1") for request in written)
