"""Start Spark as pipelines need it: with a Java, without jars, and without noise on the user's terminal."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from odradek.spark.interpreter import launcher
from odradek.spark.java import ensure_java
from odradek.spark.options import CHECKPOINTS_VARIABLE

_LOCAL_SETTINGS: Final = {
    # nothing of a session on this machine is meant for others
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    # Java and its Python processes: rows are copied less, and small messages do not wait for TCP's acknowledgements
    "spark.python.unix.domain.socket.enabled": str(os.name == "posix").lower(),
}
_SETTINGS: Final = {
    "spark.ui.showConsoleProgress": "false",
    # Java fills one batch of rows while Python writes the one before; with 64 MB for each, rows of 1 KB wait for memory
    "spark.sql.execution.arrow.maxBytesPerBatch": "8m",
}


def settings_for(master: str, given: Mapping[str, str], checkpoints: str | None = None) -> dict[str, str]:
    """Spark's settings: the user's before ours; with `checkpoints` each named query has a folder of its own there."""
    found = {**_SETTINGS, **(_LOCAL_SETTINGS if is_local(master) else {})}
    if checkpoints is not None:
        found["spark.sql.streaming.checkpointLocation"] = checkpoints
    return {**found, **given}


def is_local(master: str) -> bool:
    """Whether the master runs in this process's machine (`local`, `local[N]`)."""
    return master == "local" or master.startswith("local[")


def prepare_environment(master: str, checkpoints: str | None = None) -> None:
    """What Spark's processes inherit from this one: a Java, this Python, the checkpoints. Raises NoJavaError."""
    ensure_java()
    os.environ["PYSPARK_DRIVER_PYTHON"] = launcher()
    if is_local(master):
        os.environ["PYSPARK_PYTHON"] = launcher()
    if checkpoints is not None:
        os.environ[CHECKPOINTS_VARIABLE] = checkpoints


def start_session(master: str, name: str, settings: Mapping[str, str], log: Path) -> Any:
    """The process's SparkSession, which `SparkSession.builder.getOrCreate()` returns from then on.

    All that Java and the Python workers print goes to the log file.
    """
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    with standard_error_to(log):
        return builder.getOrCreate()


def has_ended(error: Exception) -> bool:
    """Whether a call into the JVM failed because the JVM has ended: py4j cannot connect, or got no answer."""
    from py4j.protocol import Py4JError, Py4JJavaError

    return isinstance(error, ConnectionError) or (isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError))


def is_usable(session: Any) -> bool:
    """Whether the JVM of a session runs, and its context was not stopped, as by the loss of a cluster's master."""
    try:
        return not session.sparkContext._jsc.sc().isStopped()
    except Exception as error:
        if not has_ended(error):
            raise
        return False


def end_session(session: Any) -> None:
    """Stop the process's session. `start_session` can start another one then, also where the JVM has ended."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    try:
        session.stop()
    except Exception as error:
        if not has_ended(error):
            raise
        # PySpark would use the connection to the former JVM, and return the former session.
        gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
        SparkContext._active_spark_context = None
        SparkSession._instantiatedSession = SparkSession._activeSession = None
        if gateway is not None:
            gateway.shutdown_callback_server()


CONNECT_SETTINGS: Final = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.address": "localhost",
    "spark.connect.grpc.binding.port": "0",
    "spark.sql.artifact.isolation.enabled": "true",
    "spark.sql.artifact.isolation.alwaysApplyClassloader": "true",
}
"""What makes a session serve Spark Connect, to who knows the token and is on this machine."""

TOKEN_VARIABLE: Final = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105 - a name


def connect_url(session: Any) -> str:
    """Where a session with CONNECT_SETTINGS listens: a value for SPARK_REMOTE."""
    service = getattr(session._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
    return f"sc://localhost:{getattr(service, 'MODULE$').localPort()}"


@contextlib.contextmanager
def standard_error_to(path: Path) -> Iterator[None]:
    """Processes started meanwhile write their standard error to a file for as long as they live."""
    sys.stderr.flush()
    saved = os.dup(2)
    with path.open("ab") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
