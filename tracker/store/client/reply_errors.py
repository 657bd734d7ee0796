"""What an error of a command means: no reply, no work at the moment, or a wrong command."""

from redis.exceptions import (
    AskError,
    ClusterDownError,
    InvalidResponse,
    MasterDownError,
    MovedError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

NO_REPLY = (RedisConnectionError, RedisTimeoutError, InvalidResponse, OSError)
"""No reply, or no valid reply. LOADING and a password that has changed are connection errors too."""
DEMOTED = (ReadOnlyError, MasterDownError)
"""The errors of a server that has become a replica."""
OUTCOMES = ("answered", "error", "refused", "timeout", "unreachable")
"""``error``: the command is wrong; ``refused``: the store answers but does not accept work now."""
_REFUSALS = (ReadOnlyError, ClusterDownError, TryAgainError, AskError)
_REFUSAL_CODES = ("BUSY ", "MISCONF ", "NOREPLICAS ")
_REPEATED = (NoScriptError, MovedError)
"""The call is repeated, with the script or at another node."""


def is_missing_function(error: Exception) -> bool:
    """Whether FCALL named a function that the server does not have, and so ran nothing."""
    return str(error) == "Function not found"


def refused_writes(error: BaseException | None) -> str:
    """Why the store refuses writes, if ``error`` of a write says so; else empty. A fixed text for /ready and logs."""
    if str(error).startswith("MISCONF "):
        return "disk full"
    reasons = ((ReadOnlyError, "read-only"), (NoPermissionError, "no permission"), (OutOfMemoryError, "out of memory"))
    return next((reason for kind, reason in reasons if isinstance(error, kind)), "")


def is_refusal(error: Exception) -> bool:
    return isinstance(error, _REFUSALS) or str(error).startswith(_REFUSAL_CODES)


def outcome_of(error: Exception | None) -> str:
    """One of OUTCOMES."""
    if error is None or isinstance(error, _REPEATED) or is_missing_function(error):
        return "answered"
    if isinstance(error, RedisTimeoutError | TimeoutError):
        return "timeout"
    if isinstance(error, NO_REPLY):
        return "unreachable"
    return "refused" if is_refusal(error) else "error"
