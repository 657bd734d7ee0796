"""One backup of a store runs at a time."""

from pathlib import Path

import pytest

from tracker.errors import StartupError
from tracker.valkey.backup import _alone


def test_a_second_backup_is_refused(tmp_path: Path) -> None:
    with _alone(tmp_path), pytest.raises(StartupError, match="another backup of this store is running"):
        with _alone(tmp_path):
            pass
    with _alone(tmp_path):
        pass


def test_an_error_inside_a_backup_is_not_reported_as_another_backup(tmp_path: Path) -> None:
    with pytest.raises(BlockingIOError), _alone(tmp_path):
        raise BlockingIOError
