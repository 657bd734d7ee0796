"""How an endpoint is declared: once, as a function whose signature says what goes in and what comes out.

    @endpoints.get("/torrents/{info_hash}", "A torrent")
    async def show(call: Call, info_hash: InfoHashText) -> TorrentDetails: ...

A parameter whose name stands in the path is a part of the path, ``query`` a model of the query string, and ``body`` a
model of the JSON body; a ``Form`` among its alternatives is read from multipart/form-data. The answer is a model, or
None for 204. The route, the checks of what comes in (reading.py) and the OpenAPI document (openapi.py) all come from
this one declaration; the docstring is the description.
"""

import inspect
import re
import types
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, Union, cast, get_args, get_origin

from pydantic import BaseModel, ConfigDict, create_model

from tracker.admin.auth import Identity
from tracker.admin.desk import Desk
from tracker.stores import Stores

_PLACEHOLDER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Call:
    """One request: who asks, and what the answer is made from."""

    desk: Desk
    identity: Identity

    @property
    def stores(self) -> Stores:
        return self.desk.stores

    @property
    def is_full(self) -> bool:
        """Whether the one who asks may see secrets."""
        return self.identity.scope == "full"


class Query(BaseModel):
    """A query string. Names that it does not have are refused, so that typing errors show."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Body(BaseModel):
    """A JSON object. Names that it does not have are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Form(BaseModel):
    """A body of multipart/form-data; fields of type bytes are files."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Answer(BaseModel):
    """What an endpoint answers."""

    model_config = ConfigDict(frozen=True)


Handler = Callable[..., Awaitable[Answer | None]]
H = TypeVar("H", bound=Handler)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One declared endpoint. ``errors`` are those of its own: openapi.py adds what every endpoint may answer."""

    method: str
    path: str
    handler: Handler
    tag: str
    summary: str
    description: str
    status: int
    answer: type[Answer] | None
    path_model: type[BaseModel] | None
    query: type[Query] | None
    body: type[Body] | None
    form: type[Form] | None
    errors: Mapping[int, str]
    full_only: bool
    known: str
    """When the answer's ``new`` is false it is 200 instead of ``status``, and this is why; empty: never."""
    location: str

    @property
    def name(self) -> str:
        """As clients made from the document call it."""
        return f"{self.tag.replace('-', '_')}_{self.handler.__name__}"


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The endpoints about one subject."""

    tag: str
    about: str
    all: list[Endpoint] = field(default_factory=list)

    def get(self, path: str, summary: str, **options: Any) -> Callable[[H], H]:
        return self._declare("GET", path, summary, **options)

    def post(self, path: str, summary: str, **options: Any) -> Callable[[H], H]:
        return self._declare("POST", path, summary, **options)

    def put(self, path: str, summary: str, **options: Any) -> Callable[[H], H]:
        return self._declare("PUT", path, summary, **options)

    def patch(self, path: str, summary: str, **options: Any) -> Callable[[H], H]:
        return self._declare("PATCH", path, summary, **options)

    def delete(self, path: str, summary: str, **options: Any) -> Callable[[H], H]:
        return self._declare("DELETE", path, summary, **options)

    def _declare(
        self,
        method: str,
        path: str,
        summary: str,
        *,
        status: int = 200,
        errors: Mapping[int, str] | None = None,
        full_only: bool = False,
        known: str = "",
        location: str = "",
    ) -> Callable[[H], H]:
        """``full_only``: a GET that needs scope full, too. ``location``: where the new thing is, with fields of the answer."""

        def declare(handler: H) -> H:
            hints = inspect.get_annotations(handler, eval_str=True)
            answer = hints["return"]
            body, form = _bodies(hints.get("body"))
            self.all.append(
                Endpoint(
                    method=method,
                    path=path,
                    handler=handler,
                    tag=self.tag,
                    summary=summary,
                    description=inspect.getdoc(handler) or "",
                    status=204 if answer is None else status,
                    answer=answer,
                    path_model=_path_model(path, hints),
                    query=hints.get("query"),
                    body=body,
                    form=form,
                    errors=errors or {},
                    full_only=full_only,
                    known=known,
                    location=location,
                )
            )
            return handler

        return declare


def _bodies(hint: Any) -> tuple[type[Body] | None, type[Form] | None]:
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    body = next((kind for kind in kinds if kind is not None and issubclass(kind, Body)), None)
    form = next((kind for kind in kinds if kind is not None and issubclass(kind, Form)), None)
    return body, form


def _path_model(path: str, hints: Mapping[str, Any]) -> type[BaseModel] | None:
    names = _PLACEHOLDER.findall(path)
    if not names:
        return None
    fields = {name: (hints[name], ...) for name in names}
    return cast("type[BaseModel]", create_model("Path", **cast("Any", fields)))
