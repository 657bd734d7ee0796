"""Logs: structlog and the standard library through one renderer, to standard error, without secrets.

Values are masked after their conversion to text and before rendering, so that no exception, repr or library message
shows a secret. A thread writes the lines, because a reader that stops (a full pipe, a paused terminal) must not block
the tracker. If the queue is full, lines are dropped; a warning says how many when the reader continues.
"""

import contextlib
import logging
import os
import queue
import re
import sys
import threading
import time
from collections.abc import MutableMapping
from typing import IO, Any

import structlog
from structlog.typing import Processor

from tracker.system.logger import FirstLine
from tracker.system.masking import MASK, SECRET_NAMES, mask

WAITING_LINES = 10_000
"""Maximum number of lines that wait for a slow reader."""
_CLOSE_SECONDS = 2.0

_SECRET_KEY = re.compile(SECRET_NAMES, re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_MANY_LINES = frozenset({"exception", "stack"})
_PLAIN = (int, float, type(None))
_MAX_DEPTH = 4


def configure(level: str = "info", format: str = "auto", stream: IO[str] | None = None) -> "Writer":
    """Sends all logs of this process to ``stream`` (default: standard error); replaces an earlier configuration.
    ``format`` ``auto`` means human in a terminal and JSON elsewhere. Waiting lines are written at the end of the
    process, or by ``Writer.close``."""
    stream = sys.stderr if stream is None else stream
    human = format == "human" or (format == "auto" and stream.isatty())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
        mask_event,
    ]
    writer = Writer(stream)
    writer.setFormatter(_formatter(shared, human, colours=human and stream.isatty() and "NO_COLOR" not in os.environ))
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,  # existing loggers must use the new configuration
    )
    root = logging.getLogger()
    for old in [handler for handler in root.handlers if isinstance(handler, Writer | FirstLine)]:
        root.removeHandler(old)
        old.close()
    root.addHandler(writer)
    root.setLevel(level.upper())
    logging.captureWarnings(capture=True)
    return writer


def write_rendered(line: str) -> None:
    """Writes a line rendered by another process of the tracker. Only the writer's thread writes to the stream."""
    writers = [handler for handler in logging.getLogger().handlers if isinstance(handler, Writer)]
    if writers:
        writers[0].put(line)
    else:
        sys.stderr.write(f"{line}\n")


def _formatter(shared: list[Processor], human: bool, colours: bool) -> logging.Formatter:
    renderer: Processor = structlog.processors.JSONRenderer()
    if human:
        renderer = structlog.dev.ConsoleRenderer(
            colors=colours,
            pad_event_to=0,
            exception_formatter=structlog.dev.plain_traceback,  # the default formatter shows local variables
        )
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared, processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer]
    )


def mask_event(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor that masks secrets and escapes control characters in all values."""
    for name, value in event.items():
        if not name.startswith("_"):  # the formatter's own
            event[name] = _masked(name, value, 0)
    return event


def _masked(name: str, value: object, depth: int) -> object:
    if isinstance(value, _PLAIN):
        return value
    if _SECRET_KEY.search(name):
        return MASK
    if isinstance(value, dict) and depth < _MAX_DEPTH:
        return {_text(k): _masked(str(k), v, depth + 1) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset) and depth < _MAX_DEPTH:
        return [_masked("", item, depth + 1) for item in value]
    return _text(value, lines=name in _MANY_LINES)


def _text(value: object, lines: bool = False) -> str:
    """Masked text on one line: bytes from clients cannot add lines or colours to the log."""
    text = mask(value if isinstance(value, str) else _safe_repr(value))
    text = _CONTROL.sub(lambda found: found.group().encode("unicode_escape").decode(), text)
    return text if lines else text.replace("\n", "\\n")


def _safe_repr(value: object) -> str:
    try:
        return str(value) if isinstance(value, BaseException | os.PathLike) else repr(value)
    except Exception as error:  # noqa: BLE001  # a failing repr must not lose the line
        return f"<{type(value).__name__}: {type(error).__name__} in its repr>"


class Writer(logging.Handler):
    """Renders in the caller's thread and writes in its own. If its queue is full, it drops lines and counts them.
    Threads do not survive a fork, so a child process calls ``configure`` again."""

    def __init__(self, stream: IO[str], waiting: int = WAITING_LINES) -> None:
        super().__init__()
        self._stream = stream
        self._queue: queue.Queue[str | threading.Event | None] = queue.Queue(waiting)
        self._dropped = 0
        self._thread = threading.Thread(target=self._write_all, name="logs", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception as error:  # noqa: BLE001  # logging's own error report would show unmasked arguments
            line = f"a log line of {record.name} could not be written: {type(error).__name__}"
        self.put(line)

    def put(self, line: str) -> None:
        try:
            self._queue.put_nowait(line)
        except queue.Full:
            self._dropped += 1

    def flush(self) -> None:
        """Waits until the queue is written, at most 2 seconds."""
        written = threading.Event()
        deadline = time.monotonic() + _CLOSE_SECONDS
        with contextlib.suppress(queue.Full):
            self._queue.put(written, timeout=_CLOSE_SECONDS)
            written.wait(max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """Writes the queue and ends the thread; waits at most 2 seconds for a slow reader."""
        if self._thread.is_alive():
            with contextlib.suppress(queue.Full):
                self._queue.put(None, timeout=_CLOSE_SECONDS)
                self._thread.join(_CLOSE_SECONDS)
        super().close()

    def _write_all(self) -> None:
        while (line := self._queue.get()) is not None:
            if isinstance(line, threading.Event):
                line.set()
                continue
            self._write(line)
            if self._dropped:
                dropped, self._dropped = self._dropped, 0
                text = f"{dropped} log lines dropped: the reader is too slow"
                record = logging.LogRecord(__name__, logging.WARNING, __file__, 0, text, None, None)
                self._write(self.format(record))

    def _write(self, line: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # the reader is gone or the stream is closed: continue
            try:
                self._stream.write(line + "\n")
            except UnicodeEncodeError:
                self._stream.write(line.encode("ascii", "backslashreplace").decode() + "\n")
            self._stream.flush()
