"""The licences of the run-time dependencies, as the installed packages state them.

    .venv/bin/python tools/licences.py

prints a line for each package that requirements/site.txt pins: name, version, licence. Packages for other systems or
Python versions are not installed, and the line says so.
"""

import re
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

LOCK = Path(__file__).parents[1] / "requirements" / "site.txt"
_PIN = re.compile(r"^([a-z0-9.-]+)==([^\s;]+)", re.MULTILINE)
_CLASSIFIER = "License :: OSI Approved :: "
_FAMILIES = {
    "MIT": r"\bMIT\b",
    "BSD": r"\bBSD\b",
    "Apache-2.0": r"\bApache\b",
    "ISC": r"\bISC\b",
    "MPL-2.0": r"\bMPL\b",
    "PSF-2.0": r"\bPSF\b",
    "GPLv2": r"\bL?GPL",
}


def stated(package: Distribution) -> str:
    """The licence expression, else the short licence field, else the classifiers. Empty: the package states none."""
    metadata = package.metadata
    expression = metadata["License-Expression"] or metadata["License"] or ""
    if expression.strip() and "\n" not in expression.strip():
        return expression.strip()
    classifiers = metadata.get_all("Classifier") or []
    return ", ".join(each.removeprefix(_CLASSIFIER) for each in classifiers if each.startswith(_CLASSIFIER))


def families(licence: str) -> set[str]:
    """The kinds of licence that a statement names, without versions of BSD."""
    return {name for name, pattern in _FAMILIES.items() if re.search(pattern, licence)}


def licences(lock: Path = LOCK) -> dict[str, str | None]:
    """What each pinned package states; None for one that is not installed here."""
    found: dict[str, str | None] = {}
    for name, _ in _PIN.findall(lock.read_text(encoding="utf-8")):
        try:
            found[name] = stated(distribution(name))
        except PackageNotFoundError:
            found[name] = None
    return found


def main() -> None:
    pins = dict(_PIN.findall(LOCK.read_text(encoding="utf-8")))
    for name, licence in licences().items():
        print(f"{name:20} {pins[name]:12} {'not installed here' if licence is None else licence}")


if __name__ == "__main__":
    main()
