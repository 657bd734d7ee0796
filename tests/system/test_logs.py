"""Logs: one renderer for all libraries, text or JSON, without secrets."""

import io
import json
import logging
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest
import structlog

from tracker.system.logger import FirstLine, Logger
from tracker.system.logs import Writer, configure, write_rendered
from tracker.system.masking import mask

PASSKEY = "0123456789abcdef0123456789abcdef"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def logs_as_before() -> Iterator[None]:
    root = logging.getLogger()
    level = root.level
    yield
    for handler in [handler for handler in root.handlers if isinstance(handler, Writer)]:
        root.removeHandler(handler)
        handler.close()
    root.setLevel(level)
    logging.captureWarnings(capture=False)
    structlog.reset_defaults()


def written(act: Callable[[], object], stream: io.StringIO | None = None, **choices: Any) -> str:
    """The log output while ``act`` runs."""
    stream = stream or io.StringIO()
    writer = configure(**choices, stream=stream)
    act()
    writer.flush()
    return stream.getvalue()


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("is_library", [False, True])
def test_the_first_line_sets_up_the_log_of_a_command(is_library: bool) -> None:
    stream, root = io.StringIO(), logging.getLogger()
    first = FirstLine(lambda: configure("error", stream=stream))
    root.addHandler(first)
    root.setLevel(logging.ERROR)
    for url in ("http://a:secret@b", "http://c:secret@d"):
        if is_library:
            logging.getLogger("library").warning("left out")
            logging.getLogger("library").error(url)
        else:
            Logger("library").warning("left out")
            Logger("library").error(url)
    assert first not in root.handlers
    (writer,) = [handler for handler in root.handlers if isinstance(handler, Writer)]
    writer.flush()
    lines = [(line["logger"], line["event"]) for line in objects(stream.getvalue())]
    assert lines == [("library", "http://***@b"), ("library", "http://***@d")]


def test_logs_are_json_outside_a_terminal() -> None:
    log = structlog.get_logger("tracker.reaper")
    (line,) = objects(written(lambda: log.info("reaped", peers=3)))
    stamp = line.pop("timestamp")
    assert line == {"event": "reaped", "peers": 3, "level": "info", "logger": "tracker.reaper"}
    assert stamp.endswith("Z")
    assert datetime.fromisoformat(stamp).utcoffset() == timedelta(0)


def test_logs_are_text_in_a_terminal_and_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    log = structlog.get_logger("tracker")
    coloured = written(lambda: log.info("reaped", peers=3), Terminal())
    assert "\x1b[" in coloured
    assert "reaped" in coloured
    assert "\x1b[" not in written(lambda: log.info("reaped", peers=3), format="human")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in written(lambda: log.info("reaped", peers=3), Terminal())
    assert objects(written(lambda: log.info("x"), Terminal(), format="json"))


def test_logs_of_the_standard_library_use_the_same_renderer() -> None:
    (line,) = objects(written(lambda: logging.getLogger("aiohttp.server").warning("odd %s", "request")))
    assert (line["event"], line["level"], line["logger"]) == ("odd request", "warning", "aiohttp.server")


def test_warnings_are_logged() -> None:
    def warn() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            logging.captureWarnings(capture=False)
            logging.captureWarnings(capture=True)
            warnings.warn("old", DeprecationWarning, stacklevel=1)

    (line,) = objects(written(warn))
    assert line["logger"] == "py.warnings"


def test_lines_below_the_level_are_not_written() -> None:
    def act() -> None:
        structlog.get_logger("tracker").info("no")
        logging.getLogger("redis").info("no")
        structlog.get_logger("tracker").warning("yes")

    assert [line["event"] for line in objects(written(act, level="warning"))] == ["yes"]


def test_a_logger_follows_the_latest_configuration() -> None:
    log = structlog.get_logger("tracker")
    first, second = io.StringIO(), io.StringIO()
    configure(stream=first)
    log.info("one")
    configure(stream=second).flush()
    log.info("two")
    configure(stream=io.StringIO())
    assert [line["event"] for line in objects(first.getvalue())] == ["one"]
    assert [line["event"] for line in objects(second.getvalue())] == ["two"]


@dataclass(frozen=True)
class User:
    passkey: str


def fail() -> None:
    raise ValueError(f"no user at /{PASSKEY}/announce")


def log_an_exception() -> None:
    local_passkey = PASSKEY
    try:
        fail()
    except ValueError:
        structlog.get_logger("tracker").exception("failed")
        logging.getLogger("aiohttp.server").exception("failed")
    del local_passkey


@pytest.mark.parametrize("format", ["human", "json"])
@pytest.mark.parametrize(
    "act",
    [
        lambda: structlog.get_logger("t").info("x", passkey=PASSKEY),
        lambda: structlog.get_logger("t").info("x", PASSKEY_old=PASSKEY, user_password=PASSKEY, token=[PASSKEY]),
        lambda: structlog.get_logger("t").info(f"GET /{PASSKEY}/announce?info_hash=a&key=secret"),
        lambda: structlog.get_logger("t").info("x", path=f"//{PASSKEY}//Scrape/"),
        lambda: structlog.get_logger("t").info("x", path=f"/{PASSKEY}/announce.php".encode()),
        lambda: structlog.get_logger("t").info(f"GET //Announce//{PASSKEY}?info_hash=a HTTP/1.1"),
        lambda: structlog.get_logger("t").info("x", url=f"http://h/scrape/{PASSKEY}".encode()),
        lambda: structlog.get_logger("t").info(f"GET /announce?x=1&passkey={PASSKEY}&info_hash=a"),
        lambda: structlog.get_logger("t").info(f"GET /{PASSKEY}/announce/{PASSKEY}?passkey={PASSKEY}"),
        lambda: structlog.get_logger("t").info("x", user=User(PASSKEY), users=[{"passkey": PASSKEY}]),
        lambda: structlog.get_logger("t").info("x", deep=[[[[[[{"passkey": PASSKEY}]]]]]]),
        lambda: structlog.get_logger("t").info("x", error=ValueError(f"t:user:{PASSKEY}")),
        lambda: structlog.get_logger("t").info("x", query=f"a=1&passkey={PASSKEY}&b=2"),
        lambda: structlog.get_logger("t").info("x", url=f"redis://site:{PASSKEY}@h/0"),
        lambda: structlog.get_logger("t").info("x", headers={"Authorization": f"Bearer {PASSKEY}"}),
        lambda: structlog.get_logger("t").info(f"refused swk_0123456789ab_{PASSKEY}"),
        lambda: structlog.get_logger("t").info(f"http://127.0.0.1:6970/sign-in#{PASSKEY} and so on"),
        lambda: structlog.get_logger("t").info("x", sent=f"a=b; tracker_session={PASSKEY}; c=d"),
        lambda: logging.getLogger("aiohttp.access").info('"GET /%s/announce HTTP/1.1"', PASSKEY),
        lambda: logging.getLogger("aiohttp.access").info('"GET /announce/%s HTTP/1.1"', PASSKEY),
        log_an_exception,
    ],
)
def test_a_passkey_is_never_logged(act: Callable[[], object], format: str) -> None:
    text = written(act, format=format, level="debug")
    assert text.strip()
    assert PASSKEY not in text


@pytest.mark.parametrize(
    "text",
    [
        "GET /announce?info_hash=x HTTP/1.1",
        "http://0.0.0.0:6969/announce",
        "http://[::1]:6969/scrape",
        'File "/srv/tracker/announce.py", line 1',
        "/srv/lua/announce.lua",
        "redis://127.0.0.1:6379/0",
        "t:users",
    ],
)
def test_other_text_is_not_masked(text: str) -> None:
    assert mask(text) == text


def test_arguments_of_an_unknown_command_are_removed() -> None:
    text = "ERR unknown command 'X', with args beginning with: 'a' 'b' \nsecond line"
    assert mask(text) == "ERR unknown command 'X'\nsecond line"


def test_the_context_of_a_secret_stays_readable() -> None:
    assert mask("http://h:1/abc/announce?x=1") == "http://h:1/***/announce?x=1"
    assert mask("http://h:1/announce/abc?x=1") == "http://h:1/announce/***?x=1"
    assert mask("http://h:1/scrape?passkey=abc&x=1") == "http://h:1/scrape?passkey=***&x=1"
    assert mask("rediss://me:p@ss/w@h:6380/0") == "rediss://***@h:6380/0"


def test_control_characters_of_clients_are_escaped() -> None:
    text = written(lambda: structlog.get_logger("t").info("x", agent="a\n\x1b[31mb\r"), format="human")
    assert text.count("\n") == 1
    assert "\x1b" not in text
    assert "\r" not in text


def test_a_broken_repr_does_not_lose_the_line() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError

    (line,) = objects(written(lambda: structlog.get_logger("t").info("x", value=Broken())))
    assert line["value"] == "<Broken: RuntimeError in its repr>"


def test_text_that_the_stream_cannot_encode_is_escaped() -> None:
    raw = io.BytesIO()
    writer = configure(format="human", stream=io.TextIOWrapper(raw, encoding="ascii"))
    structlog.get_logger("t").info("größe")
    writer.flush()
    assert b"gr\\xf6\\xdfe" in raw.getvalue()


def test_a_line_that_fails_to_format_is_reported_without_its_arguments() -> None:
    stream = io.StringIO()
    writer = configure(stream=stream)
    writer.handle(logging.LogRecord("aiohttp", logging.INFO, "", 0, "%s %s", (PASSKEY,), None))
    writer.flush()
    assert stream.getvalue() == "a log line of aiohttp could not be written: TypeError\n"


def test_a_slow_reader_blocks_nothing_and_is_told_how_many_lines_it_missed() -> None:
    reading, writing = (os.fdopen(fd, mode) for fd, mode in zip(os.pipe(), "rw", strict=True))
    writer = Writer(writing, waiting=10)
    record = logging.LogRecord("t", logging.INFO, "", 0, "x" * 4096, None, None)
    for _ in range(200):
        writer.handle(record)  # returns although the pipe is full
    gathered: list[str] = []
    reader = threading.Thread(target=lambda: gathered.extend(reading))
    reader.start()
    writer.close()
    writing.close()
    reader.join()
    reading.close()
    assert any("log lines dropped" in line for line in gathered)
    assert len(gathered) < 200


def test_a_line_of_another_process_is_written_unchanged() -> None:
    """In order with the lines of this process."""
    line = '{"event": "of another process"}'

    def act() -> None:
        structlog.get_logger("here").info("first")
        write_rendered(line)

    text = written(act, format="json")
    assert [row["event"] for row in objects(text)] == ["first", "of another process"]
    assert text.endswith(f"{line}\n")
