"""Which logs retention and compaction have something to do for, found out without opening them."""

from __future__ import annotations

import shutil
from pathlib import Path

from odradek.log.config import LogConfig
from odradek.log.directories.survey import Survey, survey
from odradek.ports.disk import SystemDisk
from tests.unit.log.support import NOW, batch, open_log, put

SHORT = LogConfig(retention_ms=1000)


def test_log_deleted_during_a_survey_does_not_stop_retention_of_others(tmp_path: Path) -> None:
    class DeletingDisk(SystemDisk):
        def modified_ms(self, path: str) -> int:
            shutil.rmtree(tmp_path / "deleted", ignore_errors=True)
            return super().modified_ms(path)

    wanted = []
    for name in ("deleted", "kept"):
        log = open_log(tmp_path / name)
        put(log, batch())
        log.close()
        wanted.append(Survey(name, 0, log.directory, SHORT, None))
    assert survey(DeletingDisk(), wanted, NOW + 1_000_000) == [("kept", 0)]
