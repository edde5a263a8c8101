"""`odradek cluster health`: what an operator should look at, and an exit status for scripts."""

from __future__ import annotations

import argparse
from typing import Any, Final

from odradek.cli.session import run_admin
from odradek.cli.terminal.output import DOCUMENTS, Column, show, show_document
from odradek.cli.terminal.watching import repeat
from odradek.client.reports.health import find_problems
from odradek.client.reports.health_problem import HealthProblem, Severity

EXIT_STATUS: Final = {Severity.OK: 0, Severity.WARNING: 3, Severity.CRITICAL: 4}
"""1 and 2 are those of a command that failed and of a wrong option."""
COLUMNS: Final = (
    Column("SEVERITY", "severity", 8),
    Column("CHECK", "check", 26),
    Column("NUMBER", "number", 6),
    Column("REASON", "reason", 40),
    Column("EXAMPLES", "examples_text"),
)


def health(arguments: argparse.Namespace) -> int:
    """Exit status 0 if all is well, 3 for warnings, 4 if clients cannot use something."""

    def once() -> int:
        problems = run_admin(arguments, find_problems)
        worst = max((problem.severity for problem in problems), default=Severity.OK)
        _show(problems, worst, arguments.output)
        return EXIT_STATUS[worst]

    return repeat(once) if arguments.watch else once()


def _show(problems: list[HealthProblem], worst: Severity, output: str | None) -> None:
    if output in DOCUMENTS:
        show_document({"status": worst.name.lower(), "problems": [problem.row() for problem in problems]}, output)
        return
    if output != "tsv":
        print(f"Cluster health: {worst.name.lower()}")
    if problems:
        rows: list[dict[str, Any]] = [
            {**problem.row(), "examples_text": ", ".join(problem.examples)} for problem in problems
        ]
        show(rows, COLUMNS, output)
