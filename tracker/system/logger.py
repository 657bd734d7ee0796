"""The loggers of modules. structlog is imported, and the log of a command is set up, with the first line: that takes 50
ms, and most commands log nothing. Commands log errors only."""

import logging
from collections.abc import Callable
from typing import Any

_BELOW_ERROR = ("debug", "info", "warning")


class Logger:
    """structlog's logger of a name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, method: str) -> Any:
        for handler in logging.getLogger().handlers[:]:
            if isinstance(handler, FirstLine):
                if method in _BELOW_ERROR:
                    return lambda _event, **_values: None
                handler.set_up()
        import structlog  # noqa: PLC0415

        return getattr(structlog.get_logger(self._name), method)


class FirstLine(logging.Handler):
    """The handler of a command until its first line, for which ``configure`` puts another in its place."""

    def __init__(self, configure: Callable[[], object]) -> None:
        super().__init__()
        self._configure = configure

    def set_up(self) -> None:
        logging.getLogger().removeHandler(self)
        self._configure()

    def emit(self, record: logging.LogRecord) -> None:
        self.set_up()
        logging.getLogger().handle(record)
