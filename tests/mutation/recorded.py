"""Which lines tests execute, kept from run to run: a test file is recorded again if it or its product changed."""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.mutation.coverage_map import CoverageMap, Observed


class RecordedTests:
    """The lines of tests in a directory, and the digests of the files of which they were recorded."""

    def __init__(self, home: Path, repository: Path, product: Iterable[str]) -> None:
        self.lines = home / "tests.pickle"
        """Where `trials.record_tests` writes."""
        self._file = home / "tests.json"
        self._repository = repository
        self._product = {path: self._digest(path) for path in product}
        self._known: dict[str, dict[str, str]] = {"product": {}, "tests": {}}
        if self._file.exists() and self.lines.exists():
            self._known = json.loads(self._file.read_text())

    def outdated(self, files: Sequence[str]) -> list[str]:
        """Those of the test files that must be recorded: they, or modules that they executed, have changed."""
        before = self._known["product"]
        changed = {path for path in {*before, *self._product} if before.get(path) != self._product.get(path)}
        stale = {test[0].partition("::")[0] for test in self._tests() if changed & {path for path, _ in test[2]}}
        known = {file: digest for file, digest in self._known["tests"].items() if file not in stale}
        self._known = {"product": self._product, "tests": known}
        return [file for file in files if known.get(file) != self._digest(file)]

    def note(self, files: Sequence[str]) -> list[str]:
        """The files were recorded. Returns those with a test that failed: the next run records them again."""
        failed = pickle.loads(self.lines.read_bytes())[2]
        self._known["tests"].update({file: self._digest(file) for file in files if file not in failed})
        self._file.write_text(json.dumps(self._known))
        return sorted(failed)

    def coverage(self, files: Sequence[str]) -> CoverageMap:
        """What the tests of these files execute."""
        chosen = set(files)
        tests = [Observed(*fields) for fields in self._tests() if fields[0].partition("::")[0] in chosen]
        return CoverageMap(tests, pickle.loads(self.lines.read_bytes())[1])

    def _tests(self) -> list[tuple[Any, ...]]:
        return list(pickle.loads(self.lines.read_bytes())[0]) if self.lines.exists() else []

    def _digest(self, path: str) -> str:
        file = self._repository / path
        return hashlib.sha256(file.read_bytes()).hexdigest() if file.exists() else ""
