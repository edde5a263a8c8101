"""Every command in a block of the documentation is run by a test: each section that has one names the module here."""

from __future__ import annotations

import re

import pytest

from tests.newcomer.pages import Page
from tests.unit.house.sources import ROOT

ALL = "*"
DEVELOPERS = "the commands of developers: .ci/run and .github/workflows"
RUN_BY: dict[str, dict[str, str]] = {
    "README.md": {
        "Install": "newcomer/test_readme.py",
        "Five minutes": "newcomer/test_readme.py",
        "Two commands for contributors": DEVELOPERS,
    },
    "CONTRIBUTING.md": {ALL: DEVELOPERS},
    "docs/BACKUP.md": {ALL: "integration/test_backup.py"},
    "docs/CLIENT.md": {ALL: "newcomer/test_python_developer.py"},
    "docs/CLI.md": {ALL: "newcomer/test_operator.py"},
    "docs/CLI_REFERENCE.md": {ALL: "integration/test_cli_examples.py"},
    "docs/CLUSTER.md": {ALL: "newcomer/test_operator.py"},
    "docs/CONNECT.md": {
        "Try it": "integration/test_connect.py",
        "Files or REST": "integration/test_connect.py",
    },
    "docs/CONSOLE.md": {ALL: "integration/console/test_console_command.py"},
    "docs/DEPLOYMENT.md": {
        "A cluster without ZooKeeper: three controllers": "integration/test_quorum_page.py",
        "systemd": "unit/house/test_deployment.py",
        "Containers": "integration/test_deployment.py",
        "Kubernetes": "unit/house/test_deployment.py",
    },
    "docs/MIGRATION.md": {ALL: "newcomer/test_administrator.py"},
    "docs/OBSERVABILITY.md": {
        "Ask for help": "integration/test_cli_reports.py",
        ALL: "integration/test_observability.py",
    },
    "docs/PERFORMANCE.md": {ALL: DEVELOPERS},
    **{
        f"docs/performance/{page}.md": {ALL: DEVELOPERS}
        for page in ("broker", "clients", "cluster", "growth", "holds", "spark", "suites")
    },
    "docs/RELEASING.md": {ALL: DEVELOPERS},
    "docs/SECURITY.md": {
        "Try it in one command": "integration/test_trial_security.py",
        "From nothing to mTLS, SCRAM and ACLs": "integration/test_security_page.py",
        ALL: "newcomer/test_administrator.py",
    },
    "docs/TABLES.md": {ALL: "integration/test_tables.py"},
    "docs/UPGRADING.md": {ALL: "newcomer/test_operator.py"},
}
"""Page -> section -> the module below tests/ that runs its commands, or why none does; `*` is every other section."""

FROM_ELSEWHERE = {"docs/CLI_REFERENCE.md", "docs/DEPLOYMENT.md"}
"""Pages whose commands the modules read from the parsers of the commands and from the files in deploy/."""

PAGES = [*(f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")), *sorted(
    path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")
)]  # fmt: skip


def sections_with_commands(page: Page) -> list[str]:
    """In indented blocks, or in fenced ones of a shell."""
    fence = re.compile(r"^```(sh|bash|shell|console)$", re.MULTILINE)
    return [section for section, text in page.sections().items() if fence.search(text) or page.commands(section)]


def wrong(name: str) -> list[str]:
    """Sections of a page whose commands have no module that speaks of the page."""
    found = []
    for section in sections_with_commands(Page(name)):
        places = RUN_BY.get(name, {})
        module = places.get(section, places.get(ALL))
        if module is None:
            found.append(f"{name}: {section}: its commands are run by no test")
        elif module != DEVELOPERS and not (ROOT / "tests" / module).exists():
            found.append(f"{name}: {section}: there is no tests/{module}")
    return found


@pytest.mark.parametrize("name", PAGES)
def test_commands_of_a_page_are_run_by_a_test(name: str) -> None:
    assert not wrong(name)


@pytest.mark.parametrize("name", sorted(RUN_BY.keys() - FROM_ELSEWHERE))
def test_module_of_a_page_reads_the_page(name: str) -> None:
    """Commands are extracted from the page: a copy of them would not notice its changes."""
    modules = {module for module in RUN_BY[name].values() if module != DEVELOPERS}
    assert all(name.rpartition("/")[2] in (ROOT / "tests" / module).read_text() for module in modules)


def test_registry_has_no_page_that_is_gone() -> None:
    assert RUN_BY.keys() <= set(PAGES)


def test_commands_in_a_section_without_a_test_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(RUN_BY["README.md"], "Install")
    assert wrong("README.md") == ["README.md: Install: its commands are run by no test"]
