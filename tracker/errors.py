"""Errors that cross package borders, and the plain words for those of pydantic."""

import re
from collections.abc import Iterable
from typing import ClassVar, TypeVar

_PLAIN = (
    (r"^Value error, ", ""),
    (r"^(Input|String|Value) should ", "must "),
    (r"^Extra inputs are not permitted$", "is unknown"),
    (r"^Field required$", "is required"),
    (r"be a valid integer(, .*)?$", "be a whole number"),
    (r"be a valid number(, .*)?$", "be a number"),
    (r"be a valid boolean(, .*)?$", "be true or false"),
    (r"be a valid (string|list|dictionary|tuple)$", r"be a \1"),
    (r"be greater than or equal to ", "be at least "),
    (r"be less than or equal to ", "be at most "),
)


def plain(message: str) -> str:
    """A message of pydantic as a person would write it, to follow the name of what is wrong."""
    for pattern, words in _PLAIN:
        message = re.sub(pattern, words, message)
    return message


class ClientError(Exception):
    """A refusal whose text the caller may read: it is short, and says what to do. Those of announces and scrapes are in
    ``tracker/refusals.py``."""

    status: ClassVar[int] = 400
    """Of a reply over HTTP."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class NotFound(ClientError):
    """What the request names does not exist."""

    status = 404


class Conflict(ClientError):
    """The request is valid, but does not fit what is stored: a name is taken, a queue is full."""

    status = 409


T = TypeVar("T")


def existing(value: T | None, what: str) -> T:
    """The value. Raises NotFound for None, and for a False or 0 that a change of ``what`` returned."""
    if not value:
        raise NotFound(f"unknown {what}")
    return value


class StoreUnavailable(Exception):
    """The store did not answer, answered too late, or refuses work for now. Not the client's fault."""


class StoreOverloaded(StoreUnavailable):
    """The store answers, but too many requests wait for it."""


class Postponed(Exception):
    """A job cannot run yet. It runs again after ``seconds``, without using up a retry."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


class StartupError(Exception):
    """The tracker cannot start. The text is one line for the operator."""


class StoreNotReady(StartupError):
    """The store does not answer, or refuses work for now. A start may wait for it."""


class SettingsError(ValueError):
    """The settings are invalid. One readable line per problem, without any value that may be secret."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


class TrackerReplyError(Exception):
    """Another tracker's reply is invalid: malformed, too large, of the wrong kind. The text is fixed."""


class Unreachable(Exception):
    """Another tracker cannot be reached, does not reply in time, or reports an error. The text is our own."""


class TrackerRefusal(Exception):
    """Another tracker refused. ``text`` is its reason: limited in length, otherwise unchecked."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class PeerProtocolError(Exception):
    """A peer's bytes break the peer wire protocol. The text is fixed."""


class KrpcError(Exception):
    """A datagram is no message of the DHT. It gets no answer. The text is fixed, and becomes a label of a counter."""


class QueryError(Exception):
    """A query of the DHT is invalid, and is answered with an error. The text is fixed."""

    def __init__(self, transaction: bytes, code: int, text: str) -> None:
        super().__init__(text)
        self.transaction = transaction
        self.code = code
