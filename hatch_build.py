"""Writes the commit into packages, for `tracker --version`: of TRACKER_COMMIT, or of the checkout."""

import os
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PLACE = "tracker/commit.txt"


class CommitHook(BuildHookInterface):
    """A source distribution has the file already. An editable install asks git."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "editable" and not Path(self.root, PLACE).exists():
            file = Path(self.directory, "commit.txt")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{self._commit()}\n", encoding="ascii")
            build_data["force_include"][str(file)] = PLACE

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        Path(self.directory, "commit.txt").unlink(missing_ok=True)

    def _commit(self) -> str:
        given = os.environ.get("TRACKER_COMMIT", "")
        if given or not Path(self.root, ".git").exists():
            return given or "unknown"
        command = ("git", "-C", self.root, "rev-parse", "--short=12", "HEAD")
        try:
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            return "unknown"
