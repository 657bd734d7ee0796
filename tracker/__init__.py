"""swarmkeeper: an async BitTorrent tracker whose state is a readable Redis layout.

The layers, top first; a module imports only from lower layers (tests/test_architecture.py checks this):

    cli, app                     the command line; the processes
    admin, frontends, workers    servers; coroutines that run until cancelled
    core                         decisions on announces and scrapes
    store                        all Redis commands (store/lua: the scripts)
    wire                         parses and encodes bytes, without side effects
    bittorrent, errors           types and errors that all layers share

docs/map.md lists all folders, and the path of an announce with its one round trip to the store.
"""

from pathlib import Path

__version__ = "1.1.0"

_FOLDER = Path(__file__).parent


def commit() -> str:
    """The commit that this copy was built from, or that is checked out; "unknown" in a copy without git."""
    import subprocess  # noqa: PLC0415  # a slow import

    built = _FOLDER / "commit.txt"  # hatch_build.py writes it into packages
    if built.exists():
        return built.read_text(encoding="ascii").strip()
    if not (_FOLDER.parent / ".git").exists():
        return "unknown"
    command = ("git", "-C", str(_FOLDER.parent), "rev-parse", "--short=12", "HEAD")
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
