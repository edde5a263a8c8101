"""What `./dev test --coverage` shows, and that continuous integration shows it."""

import pytest

from tests.coverage_by_package import package_of, table
from tests.unit.house.sources import ROOT


@pytest.mark.parametrize(
    ("path", "package"),
    [
        ("src/odradek/log/segments/segment.py", "log"),
        ("/odradek/clone/src/odradek/wire/frames.py", "wire"),
        ("src/odradek/version.py", "version"),
    ],
)
def test_file_counts_for_its_package(path: str, package: str) -> None:
    assert package_of(path) == package


def test_table_sums_files_and_begins_with_the_smallest_share() -> None:
    files = {
        f"src/odradek/{name}": {"summary": {"covered_lines": ran, "num_statements": lines}}
        for name, ran, lines in (("log/a.py", 90, 100), ("log/b.py", 0, 20), ("api/c.py", 10, 40), ("ports/d.py", 0, 0))
    }
    assert [line.split() for line in table(files)] == [
        ["package", "lines", "ran"],
        ["api", "40", "25.0%"],
        ["log", "120", "75.0%"],
        ["all", "160", "62.5%"],
    ]


@pytest.mark.skipif(not (ROOT / ".ci").exists(), reason="a source archive has no .ci")
def test_ci_shows_coverage_of_the_unit_tests() -> None:
    assert "few=(--coverage tests/unit " in (ROOT / ".ci" / "run").read_text()
