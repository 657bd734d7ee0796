"""As many connections as there are descriptors for."""

import json
import subprocess
import sys

import pytest

_ASKED = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, tuple(json.loads(sys.argv[1])))
from tracker.descriptors import raise_limit, room
raise_limit()
print(json.dumps([resource.getrlimit(resource.RLIMIT_NOFILE)[0], room()]))
"""


@pytest.mark.parametrize(
    ("limits", "then"),
    [((64, 64), [64, 32]), ((64, 4096), [4096, 2560]), ((4096, 4096), [4096, 2560])],
)
def test_takes_what_it_may_have_and_leaves_some_for_others(limits: tuple[int, int], then: list[int]) -> None:
    asked = [sys.executable, "-c", _ASKED, json.dumps(limits)]
    assert json.loads(subprocess.run(asked, capture_output=True, check=True).stdout) == then
