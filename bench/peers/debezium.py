"""Debezium's connector for PostgreSQL, a plug-in of Apache's Kafka Connect: fetched from Maven Central once (7 MB)."""

import fcntl
import os
import pathlib
import shutil
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
CACHE = pathlib.Path(os.environ.get("PEERS_CACHE", pathlib.Path.home() / ".cache" / "peers")) / "debezium-3.2.0"


def plugins() -> pathlib.Path:
    """The folder for `plugin.path`. Raises LookupError where there is no mvn to fetch it with."""
    folder = CACHE / "plugins"
    if not (CACHE / "complete").exists() and not shutil.which("mvn"):
        raise LookupError("no mvn on PATH to fetch Debezium with")
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (CACHE / "complete").exists():
            shutil.copy(HERE / "debezium_pom.xml", CACHE / "pom.xml")
            goal = ["dependency:copy-dependencies", "-DoutputDirectory=plugins/debezium"]
            subprocess.run(["mvn", "-q", "-B", *goal], cwd=CACHE, check=True, timeout=600)
            (CACHE / "complete").touch()
    return folder
