"""What the documents and the image say about licences is what the installed packages state."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from tools.licences import families, licences

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
LICENCES = README.partition("\n## Licence\n")[2]
STATED = {name: licence for name, licence in licences().items() if licence is not None}


def test_every_dependency_states_a_known_licence() -> None:
    assert not [(name, licence) for name, licence in STATED.items() if not families(licence)]


def test_the_readme_names_the_licences_of_all_dependencies() -> None:
    sentence = LICENCES.partition("dependencies are under ")[2].partition(".\n")[0].partition(". After")[0]
    named = {each.strip() for each in re.split(r",| and ", " ".join(sentence.split()))}
    assert named == set().union(*(families(licence) for licence in STATED.values()))


def test_no_dependency_is_under_the_gpl() -> None:
    assert not [name for name, licence in STATED.items() if "GPLv2" in families(licence)]


def test_the_label_of_the_image_names_the_licences_of_all_dependencies() -> None:
    label = re.findall(r'image\.licenses="([^"]+)"', (ROOT / "Dockerfile").read_text(encoding="utf-8"))[0]
    named = set().union(*(families(each) for each in label.split(" AND ")))
    assert named == {"MIT"}.union(*(families(licence) for licence in STATED.values()))


def test_files_of_others_in_the_package_have_their_licence_in_its_metadata() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    files = {path for pattern in project["license-files"] for path in ROOT.glob(pattern)}
    others = set((ROOT / "tracker").rglob("*-LICENSE"))
    assert others and files == {ROOT / "LICENSE", *others}
    assert project["license"] == "MIT AND 0BSD AND ISC"


def test_the_command_prints_every_pinned_package() -> None:
    done = subprocess.run([sys.executable, ROOT / "tools/licences.py"], capture_output=True, text=True, check=True)
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(licences())
    assert ".venv/bin/python tools/licences.py" in LICENCES
