"""Declares an endpoint once: as a function whose signature names the request and the reply.

    @endpoints.get("/torrents/{info_hash}", "A torrent")
    async def show(call: Call, info_hash: InfoHashText) -> TorrentDetails: ...

A parameter named in the path is a path parameter. ``query`` is a model of the query string, ``body`` a model of the
body: a ``Body`` is JSON, a ``Form`` is multipart/form-data, ``Lines`` are text/plain. Each operation takes one kind of
body, because some client generators cannot handle two. The reply is a model, or None for 204. The route with
the validation of requests (reading.py) and the OpenAPI document (openapi.py) come from this declaration. The docstring
is the description.
"""

import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, ConfigDict, RootModel, create_model

from tracker.admin.auth.auth import Identity, Rule, add_rule
from tracker.admin.auth.recording import KINDS
from tracker.admin.context import AdminContext
from tracker.operations.audit import Change
from tracker.store.access.tokens import Role
from tracker.store.store import Store

ROOT = "/api/v1"
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Call:
    """One request: the caller's identity, and the context of the admin port."""

    context: AdminContext
    identity: Identity
    recorded: Change | None = None
    """What the audit log will say of the call; None if it changes nothing."""
    once: str = ""
    """The Idempotency-Key of a call that may be repeated; empty: none."""

    @property
    def change(self) -> Change:
        """The same, in a handler that changes something."""
        assert self.recorded is not None
        return self.recorded

    @property
    def store(self) -> Store:
        return self.context.store

    @property
    def sees_secrets(self) -> bool:
        """Whether the caller may see passkeys and addresses."""
        return self.identity.may("operate")

    @property
    def hidden_address(self) -> dict[str, None]:
        """For Reply.from_record: the address of a record, if the caller may not see it."""
        return {} if self.sees_secrets else {"address": None}


class _Strict(BaseModel):
    """Unknown names are refused, so that typing errors show."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Query(_Strict):
    """A query string."""


class Body(_Strict):
    """A JSON object."""

    max_bytes: ClassVar[int] = 65_536
    """A valid body has at most half of this. Listing the errors of a larger body would take seconds."""


class Form(_Strict):
    """A body of multipart/form-data; fields of type bytes are files."""


class Lines(RootModel[str]):
    """A body of text/plain in UTF-8."""

    model_config = ConfigDict(frozen=True)


BodyModel = type[Body] | type[Form] | type[Lines]


class Reply(BaseModel):
    """The JSON that an endpoint sends back."""

    model_config = ConfigDict(frozen=True)

    status_code: ClassVar[int] = 200
    """Unless the endpoint has another one."""
    known_text: ClassVar[str] = ""
    """The description of status 200, sent instead of ``status`` when the reply's ``new`` is false; empty: never."""
    location: ClassVar[str] = ""
    """The path of a new resource, with fields of the reply."""

    @classmethod
    def from_record(cls, found: object, **others: Any) -> Self:
        """The fields that are not among ``others`` are attributes of ``found``."""
        return cls(**{name: getattr(found, name) for name in cls.model_fields if name not in others}, **others)


class Download(Reply):
    """A file. An iterator is sent as it is made; an error that it does not tell cuts it off, which clients see."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    content: bytes | AsyncIterator[bytes]
    file_name: str
    headers: Mapping[str, str] = {}
    media_type: ClassVar[str]


Handler = Callable[..., Awaitable[Reply | None]]
H = TypeVar("H", bound=Handler)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One declared endpoint. ``missing`` and ``conflict`` describe its statuses 404 and 409; openapi.py adds those of
    every endpoint."""

    method: str
    path: str
    handler: Handler
    tag: str
    summary: str
    description: str
    reply: type[Reply] | None
    path_model: type[BaseModel] | None
    query: type[Query] | None
    body: BodyModel | None
    status: int
    missing: str = ""
    conflict: str = ""
    repeatable: bool = False
    """Whether it takes an Idempotency-Key: a repeated call gets the same reply, and changes nothing again."""

    @property
    def location(self) -> str:
        """That of the reply, for a new resource; else empty."""
        return self.reply.location if self.reply is not None and self.status in (201, 202) else ""

    @property
    def name(self) -> str:
        """The operationId, which names methods of generated clients: the tag and the handler's name. Where that begins
        with the tag already, it is the name, for handlers of several tags in a module."""
        tag, name = f"{self.tag.replace('-', '_')}_", self.handler.__name__
        return name if name.startswith(tag) else tag + name


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The endpoints of one subject. ``operation`` is the name of a change in the audit log, empty if there is none;
    ``options`` of the decorators are the last fields of Endpoint, ``role``, and for a generic reply ``schema``: its
    name and description in the document, ``Name: Text.``; by default, the text is the docstring of the generic model.
    """

    tag: str
    about: str
    all: list[Endpoint] = field(default_factory=list)

    def get(self, path: str, summary: str, *, role: Role = "read", **options: Any) -> Callable[[H], H]:
        return self._declare("GET", path, summary, role=role, **options)

    def post(self, path: str, summary: str, operation: str, **options: Any) -> Callable[[H], H]:
        return self._declare("POST", path, summary, operation, **options)

    def put(self, path: str, summary: str, operation: str, **options: Any) -> Callable[[H], H]:
        return self._declare("PUT", path, summary, operation, **options)

    def patch(self, path: str, summary: str, operation: str, **options: Any) -> Callable[[H], H]:
        return self._declare("PATCH", path, summary, operation, **options)

    def delete(self, path: str, summary: str, operation: str, **options: Any) -> Callable[[H], H]:
        return self._declare("DELETE", path, summary, operation, **options)

    def _declare(
        self,
        method: str,
        path: str,
        summary: str,
        operation: str = "",
        *,
        role: Role = "operate",
        schema: str = "",
        **options: Any,
    ) -> Callable[[H], H]:
        add_rule(method, ROOT + path, Rule(role, operation))

        names = _PLACEHOLDER.findall(path)
        objects = [KINDS[name] for name in names if name in KINDS and name != "prefix"]
        missing = f"Unknown {' or '.join(objects)}." if objects else "Not found." if names else ""

        def declare(handler: H) -> H:
            hints = inspect.get_annotations(handler, eval_str=True)
            reply = hints["return"]
            options.setdefault("status", 204 if reply is None else reply.status_code)
            options.setdefault("missing", missing)
            parameters: Any = {name: (hints[name], ...) for name in names}
            self.all.append(
                Endpoint(
                    method=method,
                    path=path,
                    handler=handler,
                    tag=self.tag,
                    summary=summary,
                    description=inspect.getdoc(handler) or "",
                    reply=_named(reply, schema, handler.__module__) if schema else reply,
                    path_model=create_model("Path", **parameters) if names else None,
                    query=hints.get("query"),
                    body=hints.get("body"),
                    **options,
                )
            )
            return handler

        return declare


def _named(reply: type[Reply], schema: str, module: str) -> type[Reply]:
    name, _, about = schema.partition(": ")
    return create_model(name, __base__=reply, __doc__=about or inspect.getdoc(reply), __module__=module)
