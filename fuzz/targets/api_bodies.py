"""JSON bodies of the API: every model accepts a body, or reports its errors as a JSON problem document."""

import json
from collections.abc import Iterable, Iterator

from pydantic import ValidationError

from tracker.admin.api import GROUPS
from tracker.admin.api.contract import BodyModel
from tracker.admin.api.reading import _listed, invalid

MAX_LENGTH = 600


def _models() -> Iterator[BodyModel]:
    yield from {endpoint.body: None for group in GROUPS for endpoint in group.all if endpoint.body is not None}


_MODELS = tuple(_models())


def check(data: bytes) -> None:
    for model in _MODELS:
        try:
            accepted = model.model_validate_json(data, strict=True)
        except ValidationError as error:
            json.dumps(invalid(_listed(error, "body")).extra, ensure_ascii=False).encode()
        else:
            accepted.model_dump_json().encode()


def seeds() -> Iterable[bytes]:
    return [b"{}", b"[]", b'{"name": "a"}', b'{"info_hash": "00", "reason": "x"}', b'{"x": 1e400, "y": "\\ud800"}']
