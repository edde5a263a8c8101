"""Go's clients, franz-go with kadm, sarama and kafka-go, as programs in `go/`; old protocol versions too.

What they may not ask, Apache Kafka 4.3 does not answer either: DescribeConfigs and DescribeLogDirs in version 0.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCES = Path(__file__).parent / "go"
LIMIT_SECONDS = 150


@pytest.fixture(scope="session")
def go_clients(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program; what it is built of stays in Go's own caches."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("Go's clients need Go, which is not installed")
    environment = {**os.environ, "GOFLAGS": "-mod=readonly -buildvcs=false"}
    fetched = subprocess.run([go, "mod", "download"], cwd=SOURCES, env=environment, capture_output=True, text=True)
    if fetched.returncode:
        pytest.skip(f"the modules of Go's clients could not be fetched: {fetched.stderr.strip()}")
    program = tmp_path_factory.mktemp("go") / "interop"
    built = subprocess.run(
        [go, "build", "-o", str(program), "."], cwd=SOURCES, env=environment, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    return program


def succeeds(program: Path, bootstrap: str, case: str, version: str = "") -> None:
    command = [str(program), bootstrap, case, *([version] if version else [])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert done.returncode == 0, f"{case} {version}: {done.stdout}\n{done.stderr}"
    assert done.stdout.strip() == f"ok {case} {version}".strip()


@pytest.mark.parametrize("case", ["franz-basic", "franz-admin", "sarama-basic", "sarama-admin", "kafka-go"])
def test_clients_of_today(go_clients: Path, bootstrap: str, case: str) -> None:
    succeeds(go_clients, bootstrap, case)


@pytest.mark.parametrize("version", ["", "2.5"])
def test_franz_go_reads_and_writes_in_transactions(go_clients: Path, bootstrap: str, version: str) -> None:
    succeeds(go_clients, bootstrap, "franz-transaction", version)


@pytest.mark.long
@pytest.mark.parametrize("version", ["", "0.11.0", "2.3"])
def test_franz_go_in_groups_of_every_kind(go_clients: Path, bootstrap: str, version: str) -> None:
    """Cooperative and eager, static members, KIP-848; the last two only without a version."""
    succeeds(go_clients, bootstrap, "franz-groups", version)


@pytest.mark.parametrize("version", ["0.11.0", "1.0", "2.0", "2.4", "3.0"])
def test_franz_go_as_of_older_days(go_clients: Path, bootstrap: str, version: str) -> None:
    succeeds(go_clients, bootstrap, "franz-basic", version)


@pytest.mark.parametrize("version", ["0.11.0.0", "1.0.0", "2.0.0", "3.6.0"])
def test_sarama_as_of_older_days(go_clients: Path, bootstrap: str, version: str) -> None:
    succeeds(go_clients, bootstrap, "sarama-basic", version)


@pytest.mark.long
@pytest.mark.parametrize("version", ["", "0.11.0.0", "1.0.0", "2.3.0"])
def test_sarama_in_groups(go_clients: Path, bootstrap: str, version: str) -> None:
    """Range (static members from 2.3), round-robin and sticky."""
    succeeds(go_clients, bootstrap, "sarama-groups", version)


@pytest.mark.parametrize(
    ("case", "version"), [("sarama-admin", "2.0.0"), ("sarama-admin", "2.8.0"), ("franz-admin", "2.4")]
)
def test_administration_as_of_older_days(go_clients: Path, bootstrap: str, case: str, version: str) -> None:
    succeeds(go_clients, bootstrap, case, version)
