"""Every test runs twice: with the fast protocol, and with aiohttp alone.

Nothing that a client does may be logged as an error; a test that causes one removes it from ``logs``.
"""

from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
import structlog

from tests.frontends.http import harness

Logs = list[MutableMapping[str, Any]]


@pytest.fixture(autouse=True)
def logs(caplog: pytest.LogCaptureFixture) -> Iterator[Logs]:
    """All structlog lines. Errors that remain in it fail the test, and so do errors of libraries."""
    with structlog.testing.capture_logs() as captured:
        yield captured
    assert not [line for line in captured if line["log_level"] in ("error", "critical")]
    assert not [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")]


@pytest.fixture(autouse=True, params=["fast", "aiohttp"])
def protocol(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(harness, "fast_path", request.param == "fast")
    return str(request.param)
