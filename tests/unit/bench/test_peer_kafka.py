"""Apache Kafka as a peer: what its script prints when it fetches the jars first."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[3] / "bench" / "peers" / "kafka.py"


def test_output_of_maven_stays_out_of_the_lines_that_callers_read(tmp_path: Path) -> None:
    """Maven ends with an escape sequence without a newline: the line after it did not begin with "ready" then."""
    maven = tmp_path / "bin" / "mvn"
    maven.parent.mkdir()
    maven.write_text("#!/bin/sh\nprintf '\\033[0m'\n")
    maven.chmod(0o755)
    environment = {
        "PATH": f"{maven.parent}{os.pathsep}{os.environ['PATH']}",
        "PEERS_CACHE": str(tmp_path / "cache"),
    }
    command = [sys.executable, str(SCRIPT), "classpath"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(str(tmp_path / "cache"))
    assert "\033[0m" in done.stderr
