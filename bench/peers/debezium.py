"""Debezium from Maven Central, fetched once: its connector for PostgreSQL (7 MB), and Debezium Server (73 MB).

The server's distribution has all connectors and sinks (780 MB). What is built here has PostgreSQL and Kafka alone, from
the same artifacts by the same Quarkus plug-in. It needs Java 21 or newer: $DEBEZIUM_JAVA_HOME, $JAVA_HOME, java on
PATH, or one that the system has beside it.
"""

import fcntl
import os
import pathlib
import re
import shutil
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
PEERS = pathlib.Path(os.environ.get("PEERS_CACHE", pathlib.Path.home() / ".cache" / "peers"))
OLDEST_JAVA = 21


def plugins() -> pathlib.Path:
    """The folder for `plugin.path`. Raises LookupError where there is no mvn to fetch it with."""
    goal = ["dependency:copy-dependencies", "-DoutputDirectory=plugins/debezium"]
    return built(PEERS / "debezium-3.2.0", "debezium_pom.xml", goal) / "plugins"


def server() -> list[str]:
    """The command that runs Debezium Server in a folder with `config/application.properties`.

    Raises LookupError where there is no mvn to fetch it with, or no Java that is new enough.
    """
    home = java_home()
    folder = built(PEERS / "debezium-server-3.3.0", "debezium_server_pom.xml", ["package"], home)
    return [str(home / "bin" / "java"), "-jar", str(folder / "target" / "quarkus-app" / "quarkus-run.jar")]


def java_home() -> pathlib.Path:
    """A Java that runs Debezium Server. Raises LookupError."""
    java = shutil.which("java")
    given = [os.environ.get("DEBEZIUM_JAVA_HOME"), os.environ.get("JAVA_HOME")]
    found = [pathlib.Path(each) for each in given if each]
    if java:
        beside = pathlib.Path(java).resolve().parent.parent
        found += [beside, *sorted(beside.parent.iterdir())]
    for each in found:
        release = each / "release"
        version = re.search(r'JAVA_VERSION="(\d+)', release.read_text()) if release.is_file() else None
        if version and int(version[1]) >= OLDEST_JAVA:
            return each
    raise LookupError(f"no Java {OLDEST_JAVA} or newer for Debezium Server: set DEBEZIUM_JAVA_HOME")


def built(cache: pathlib.Path, pom: str, goal: list[str], java: pathlib.Path | None = None) -> pathlib.Path:
    """The folder of a project of Maven, after the goal; `pom` is a file beside this one. Raises LookupError."""
    if not (cache / "complete").exists() and not shutil.which("mvn"):
        raise LookupError("no mvn on PATH to fetch it with")
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (cache / "complete").exists():
            shutil.copy(HERE / pom, cache / "pom.xml")
            environment = {**os.environ, **({} if java is None else {"JAVA_HOME": str(java)})}
            subprocess.run(["mvn", "-q", "-B", *goal], cwd=cache, env=environment, check=True, timeout=900)
            (cache / "complete").touch()
    return cache
