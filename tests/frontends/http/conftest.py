"""Every test is done both ways, with the door and with aiohttp alone.

Nothing that a client does may appear in the log as an error; a test that means to cause one says so.
"""

from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
import structlog

from tests.frontends import harness

Logs = list[MutableMapping[str, Any]]


@pytest.fixture(autouse=True)
def logs(caplog: pytest.LogCaptureFixture) -> Iterator[Logs]:
    """Everything logged by structlog; fails the test for errors it leaves in, and for any of the libraries'."""
    with structlog.testing.capture_logs() as captured:
        yield captured
    assert not [line for line in captured if line["log_level"] in ("error", "critical")]
    assert not [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")]


@pytest.fixture(autouse=True, params=["door", "aiohttp"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(harness, "door_is_ajar", request.param == "door")
    return str(request.param)
