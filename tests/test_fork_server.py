"""A forked tracker is like one that was started, and the process that forks it holds nothing but modules."""

import os
import pty
import signal
import subprocess
from pathlib import Path

import pytest

from loadtest import trackers
from tests.fork_server import SERVER, TRACKER, Forked
from tests.waiting import until

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="trackers are forked on Linux only")
SAME = ("NSpgid", "NSsid", "Umask", "SigBlk", "SigIgn", "SigCgt", "Threads")
"""Of /proc/PID/status."""


def status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    found = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return {name: found[name] for name in SAME}


def files(pid: int) -> set[int]:
    return {int(each.name) for each in Path(f"/proc/{pid}/fd").iterdir()}


def test_the_process_that_forks_holds_nothing_but_modules(tmp_path: Path) -> None:
    assert trackers.run(tmp_path, "--version").returncode == 0
    (pid,) = SERVER.pids
    assert status(pid)["Threads"] == "1"
    assert len(files(pid)) == 4  # standard streams, and where it is asked
    assert Path(f"/proc/{pid}/task/{pid}/children").read_text() == ""


def test_a_fork_has_signals_session_files_and_directory_as_a_started_process(tmp_path: Path) -> None:
    command = [*TRACKER, "user", "add", "--passkey", "-"]  # waits for its stdin
    kinds: list[type[subprocess.Popen[bytes]]] = [Forked, subprocess.Popen]
    processes = [kind(command, cwd=tmp_path, env=trackers.environment({}), stdin=subprocess.PIPE) for kind in kinds]
    try:
        forked, started = (process.pid for process in processes)
        until(lambda: files(forked) == files(started) and status(forked) == status(started))
        assert Path(f"/proc/{forked}/cwd").readlink() == tmp_path
        assert Path(f"/proc/{forked}/stat").read_text().split()[3] == str(os.getpid())
        for process in processes:
            process.send_signal(signal.SIGTERM)
        assert [process.wait(trackers.SECONDS) for process in processes] == [-signal.SIGTERM] * 2
    finally:
        for process in processes:
            process.kill()
            process.communicate()


@pytest.mark.parametrize("kind", [Forked, subprocess.Popen])
def test_output_environment_and_exit_code_are_those_of_the_program(
    kind: "type[subprocess.Popen[str]]", tmp_path: Path
) -> None:
    settings = trackers.environment({"TRACKER_HTTP__LISTEN": "127.0.0.1:12345", "COLUMNS": "200"})
    for words, code in ((["settings"], 0), (["nonsense"], 2)):
        process = kind(
            [*TRACKER, *words], cwd=tmp_path, env=settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        shown, error = process.communicate(timeout=trackers.SECONDS)
        assert process.returncode == code, error
        assert ("127.0.0.1:12345" in shown, "nonsense" in error) == (code == 0, code == 2)


def test_a_fork_writes_lines_to_a_terminal(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    with Forked([*TRACKER, "--version"], cwd=tmp_path, env=trackers.environment({}), stdout=theirs):
        os.close(theirs)
        assert b"swarmkeeper" in os.read(ours, 1000)
    os.close(ours)


def test_a_program_with_other_variables_for_python_is_started(tmp_path: Path) -> None:
    before = SERVER.pids
    settings = trackers.environment({"PYTHONHASHSEED": "1"})
    with Forked([*TRACKER, "--version"], cwd=tmp_path, env=settings, stdout=subprocess.PIPE) as process:
        assert b"fork_server" not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
        process.communicate()
    assert SERVER.pids == before
