"""What is published: one version, a cheap import, licence and entry points."""

import re
import subprocess
import sys
import tomllib
from importlib import metadata

import odradek
from tests.unit.house.sources import ROOT


def test_there_is_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "version" in project["dynamic"]
    assert metadata.version("odradek") == odradek.__version__


def test_importing_the_package_loads_nothing_else() -> None:
    code = "import sys; before = set(sys.modules); import odradek; print(*sorted(set(sys.modules) - before))"
    loaded = subprocess.check_output(
        [sys.executable, "-S", "-c", f"import sys; sys.path.insert(0, 'src'); {code}"], cwd=ROOT
    )
    assert loaded.decode().split() == ["odradek", "odradek.version"]


def test_every_command_of_the_door_is_explained() -> None:
    script = (ROOT / "dev").read_text()
    (names,) = re.findall(r"^(.*)\) setup ;;$", script, re.MULTILINE)
    commands = set(names.split(" | "))
    assert commands >= {"demo", "test", "check", "bench", "interop", "serve", "run"}
    shown = subprocess.check_output([ROOT / "dev", "help"], text=True)
    assert {line.split()[0] for line in shown.splitlines() if line.startswith("  ")} >= commands


def test_the_lock_covers_every_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    wanted = [*project["project"]["dependencies"], *project["dependency-groups"]["dev"], *extras["java"]]
    for extra in ("spark", "pipelines", "stores", "formats", "zookeeper"):
        wanted += [each for each in extras[extra] if not each.startswith("odradek[")]
    locked = (ROOT / "requirements" / "dev.txt").read_text() + (ROOT / "requirements" / "java.txt").read_text()
    names = {line.split("==")[0] for line in locked.splitlines()}
    missing = {w for w in wanted if re.split(r"[\[;<>]", w)[0].strip() not in names}
    assert not missing, f"run ./dev lock: {missing}"
