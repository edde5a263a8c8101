"""The workflows and docs/RELEASING.md agree with the repository."""

import re
import tomllib

import yaml

from odradek.version import __version__
from tests.unit.house.sources import ROOT

WORKFLOWS = ROOT / ".github" / "workflows"
RELEASING = (ROOT / "docs" / "RELEASING.md").read_text()


def jobs(name: str) -> dict[str, dict]:
    return yaml.safe_load((WORKFLOWS / name).read_text())["jobs"]


def test_ci_runs_what_developers_run_on_the_supported_pythons():
    (job,) = jobs("ci.yml").values()
    assert [each["run"] for each in job["steps"] if "run" in each] == [".ci/run"]
    assert job["timeout-minutes"] <= 90
    pythons = next(each["with"]["python-version"] for each in job["steps"] if "setup-python" in each.get("uses", ""))
    oldest = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"].removeprefix(">=")
    assert pythons.split()[-1] == oldest
    assert len(pythons.split()) == 2


def test_release_publishes_only_after_ci_build_and_approval():
    found = jobs("release.yml")
    assert found["publish"]["needs"] == ["ci", "build"]
    assert found["ci"]["uses"] == "./.github/workflows/ci.yml"
    assert found["publish"]["environment"]["name"] == "pypi"


def test_only_jobs_that_attest_or_publish_get_a_token():
    with_token = [name for name, job in jobs("release.yml").items() if "id-token" in job.get("permissions", {})]
    assert with_token == ["build", "publish"]
    assert "secrets." not in (WORKFLOWS / "release.yml").read_text()


def test_release_compares_the_tag_with_the_version():
    script = next(each["run"] for each in jobs("release.yml")["build"]["steps"] if "version.py" in each.get("name", ""))
    assert "GITHUB_REF_NAME" in script
    assert "odradek.version" in script


def test_version_is_written_in_one_place():
    """No other file that a release contains repeats it."""
    sources = [
        *(ROOT / "src").rglob("*.py"),
        ROOT / "pyproject.toml",
        ROOT / "README.md",
        *(ROOT / "deploy").rglob("*.*"),
    ]
    pattern = re.compile(rf"(?<![\d.]){re.escape(__version__)}(?![\d.])")
    found = [path.name for path in sources if path.is_file() and pattern.search(path.read_text())]
    assert found == ["version.py"]


def test_every_extra_is_listed():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (row,) = re.findall(r"^\| extras \| (.*) \|$", RELEASING, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", row)) == extras.keys() - {"console"}
