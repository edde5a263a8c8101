"""`odradek pipeline run FILE`: a PySpark program, or a spec of Spark Declarative Pipelines, run as a service would.

For connectors and tables without a program see `pipeline_services`.

The program finds a session in place (`SparkSession.builder.getOrCreate()` returns it), a folder for checkpoints, and
the brokers in $ODRADEK_BOOTSTRAP_SERVER. When it ends with queries running, they are waited for.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import re
import runpy
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from odradek.cli.actions.pipeline_lineage import lineage_of
from odradek.cli.actions.pipeline_restarts import (
    SLOW_START,
    FailedAtStop,
    earlier_failures,
    next_restart,
    start_again,
)
from odradek.cli.actions.pipeline_services import is_services, run_services
from odradek.cli.arguments.errors import CommandError, UsageError
from odradek.cli.arguments.examples import add_examples
from odradek.cli.arguments.options import from_zero_whole, pairs, profile_options, seconds, servers_of
from odradek.cli.arguments.variables import SERVER_VARIABLE
from odradek.cli.commands.console import address_of
from odradek.cli.commands.tables import show_commit
from odradek.cli.terminal.signals import handled
from odradek.ports.installation import install_hint

if TYPE_CHECKING:
    from odradek.spark.lineage import Lineage
    from odradek.spark.progress import Follower, Progress
    from odradek.spark.progress_metrics import PipelineMetrics

SPECS: Final = (".yml", ".yaml")
SHOWN: Final = ("lines", "json", "none")
_EVENT: Final = re.compile(r"^\d{4}-\d\d-\d\d[ T][\d:.,]+: ")
_PYTHON_ERROR: Final = re.compile(
    r"^(?:Exception in thread \S+ )?(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Fenced|Aborted|Waiting)\b.*$",
    re.MULTILINE,
)
_LOOK_S: Final = 0.02
_WAIT_S: Final = 0.1


EXAMPLES: Final = """
# run a PySpark program
odradek pipeline run flights.py --checkpoint ./state
# run a Spark Declarative Pipeline
odradek pipeline run spark-pipeline.yml
# run the connectors and tables of a file in one process
odradek pipeline run orders.yml
# write an archive for a cluster whose Python lacks this package
odradek pipeline pack odradek-env.zip
# write an archive for sessions of Spark Connect whose server lacks this package
odradek pipeline pack --connect odradek-connect.zip
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and the options for Spark, progress and state."""
    parser.add_argument("action", choices=("run", "pack"), help="run a pipeline, or pack this package for executors")
    parser.add_argument(
        "file",
        metavar="FILE",
        help="run: a .py file, a module, a spark-pipeline.yml, or a .yml file of connectors and tables; pack: the "
        "archive to write",
    )
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENT", help="arguments of the program")
    parser.add_argument("--master", default="local[*]", metavar="URL", help="master of Spark (default: local[*])")
    parser.add_argument("--checkpoint", metavar="DIR", help="keep the state of named queries in DIR/NAME")
    parser.add_argument(
        "--conf", action="append", default=[], metavar="NAME=VALUE", help="setting of Spark (repeatable)"
    )
    parser.add_argument("--name", metavar="TEXT", help="name of the application (default: that of the file)")
    parser.add_argument("--profile", metavar="NAME", help="connection of `odradek profile`")
    parser.add_argument(
        "--bootstrap-server", metavar="HOST:PORT,…", help=f"brokers, passed to the program in ${SERVER_VARIABLE}"
    )
    parser.add_argument(
        "--progress", choices=SHOWN, default="lines", help="what to print for every batch on standard error"
    )
    parser.add_argument(
        "--log", metavar="FILE", help="file for Spark's messages (default: a temporary file, kept after a failure)"
    )
    parser.add_argument(
        "--stop-timeout",
        type=seconds,
        default=60,
        metavar="S",
        help="time limit for running batches after a signal to stop (default: 60)",
    )
    parser.add_argument(
        "--restarts",
        type=from_zero_whole,
        default=0,
        metavar="N",
        help="start again after up to N failures in a row; ten minutes without one begin a new row (default: 0)",
    )
    parser.add_argument(
        "--backoff",
        type=seconds,
        default=5,
        metavar="S",
        help="pause before the first restart, which doubles up to five minutes (default: 5)",
    )
    parser.add_argument(
        "--metrics",
        metavar="HOST:PORT",
        help="serve lag, rates and failures of the queries: /metrics for Prometheus, /progress as JSON",
    )
    parser.add_argument(
        "--lineage",
        action="store_true",
        help="emit events for OpenLineage, whose own settings say where to (OPENLINEAGE_URL, openlineage.yml)",
    )
    parser.add_argument("--traceback", action="store_true", help="print the traceback of a failure")
    parser.add_argument(
        "--connect", action="store_true", help="with pack: an archive that a client of Spark Connect brings along"
    )
    parser.add_argument(
        "--secrets",
        metavar="DIR",
        help="with a file of connectors and tables: folder whose files it may name as ${file:PATH:KEY}",
    )
    _add_spec_options(parser)
    add_examples(parser, EXAMPLES)


def _add_spec_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("with a spark-pipeline.yml")
    group.add_argument("--dry-run", action="store_true", help="check the graph without running it")
    group.add_argument(
        "--refresh", action="append", default=[], metavar="DATASET", help="dataset to update (repeatable)"
    )
    group.add_argument(
        "--full-refresh",
        action="append",
        default=[],
        metavar="DATASET",
        help="dataset to compute again from its beginning (repeatable)",
    )
    group.add_argument(
        "--full-refresh-all", action="store_true", help="compute all datasets again from their beginning"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the program until it ends or a signal stops it; its exit code. After a failure, start again if allowed."""
    if arguments.action == "pack":
        return _pack(arguments.file, connect=arguments.connect)
    if arguments.connect:
        raise UsageError("--connect goes with pack only")
    began = time.monotonic()
    try:
        return _run(arguments)
    except FailedAtStop:
        raise
    except CommandError as error:
        earlier = earlier_failures(os.environ)
        ran_s = time.monotonic() - began
        restart = next_restart(str(error), ran_s, arguments.restarts, arguments.backoff, earlier)
        if restart is None:
            raise
        print(f"odradek pipeline: {error}; {restart.line()}", file=sys.stderr, flush=True)
        time.sleep(restart.pause_s)
        start_again(restart.failures)
        raise


def _pack(file: str, *, connect: bool) -> int:
    from odradek.spark.packing import PackingError, pack, settings

    if not file.endswith(".zip"):
        raise UsageError(f"{file}: the name of a .zip file expected")
    try:
        count = pack(Path(file), connect=connect)
    except PackingError as error:
        raise CommandError(str(error)) from error
    if connect:
        print(f"{file}: {count:,} files; for clients: from odradek_connect import attach; attach(spark)")
        return 0
    given = " ".join(f"--conf {name}={value}" for name, value in settings(file).items())
    print(f"{file}: {count:,} files; for spark-submit and odradek pipeline run: {given}")
    return 0


def _run_services(arguments: argparse.Namespace) -> int:
    """Run the connectors and tables of a file. Raises UsageError, CommandError."""
    options = {
        "--checkpoint": arguments.checkpoint,
        "--metrics": arguments.metrics,
        "--lineage": arguments.lineage,
        "--name": arguments.name,
        "--refresh": arguments.refresh,
        "--full-refresh": arguments.full_refresh,
        "--full-refresh-all": arguments.full_refresh_all,
        "arguments": arguments.arguments,
    }
    wrong = [name for name, given in options.items() if given]
    if wrong:
        raise UsageError(f"{wrong[0]} has no effect on a file of connectors and tables")
    return run_services(arguments, pairs(arguments.conf, "conf"), show_commit)


def _run(arguments: argparse.Namespace) -> int:
    declarative = arguments.file.endswith(SPECS)
    if declarative and is_services(Path(arguments.file)):
        return _run_services(arguments)
    if arguments.secrets is not None:
        raise UsageError("--secrets goes with a file of connectors and tables only")
    given = [arguments.dry_run, arguments.refresh, arguments.full_refresh, arguments.full_refresh_all]
    if any(given) and not declarative:
        raise UsageError("--dry-run and --refresh… go with a spark-pipeline.yml only")
    if arguments.master.startswith("sc://") or os.environ.get("SPARK_REMOTE"):
        raise UsageError("--master must not be a Spark Connect address: run such a program with python")
    conf = pairs(arguments.conf, "conf")
    _check_file(arguments.file)
    _check_packages(declarative)
    name_servers(arguments)
    checkpoints = None if arguments.checkpoint is None else str(Path(arguments.checkpoint).absolute())
    if checkpoints is not None:
        Path(checkpoints).mkdir(parents=True, exist_ok=True)
    from odradek.spark.java import NoJavaError
    from odradek.spark.session import prepare_environment, settings_for

    try:
        prepare_environment(arguments.master, checkpoints)
    except NoJavaError as error:
        raise CommandError(str(error)) from error
    settings = settings_for(arguments.master, conf, checkpoints)
    name = _name(arguments, declarative)
    with (
        _log(arguments.log) as log,
        _metrics(arguments.metrics) as metrics,
        lineage_of(name, _essence, is_wanted=arguments.lineage) as lineage,
    ):
        shown = Shown(arguments.progress, metrics, lineage)
        work = _run_spec if declarative else _run_program
        status = work(arguments, name, settings, log, shown)
        if lineage is not None and status:
            lineage.end(f"exit status {status}")
        return status


def _name(arguments: argparse.Namespace, declarative: bool) -> str:
    """The application's name: the given one, that of a specification's folder, or that of the program."""
    if arguments.name:
        return str(arguments.name)
    return Path(arguments.file).absolute().parent.name if declarative else Path(arguments.file).stem


@contextlib.contextmanager
def _metrics(address: str | None) -> Iterator[PipelineMetrics | None]:
    """Serve the queries' metrics at the address, if one is given. Raises UsageError, CommandError."""
    if address is None:
        yield None
        return
    from odradek.spark.progress_metrics import MetricsServer, PipelineMetrics

    metrics = PipelineMetrics()
    try:
        server = MetricsServer(metrics, *address_of(address, "--metrics"))
    except OSError as error:
        raise CommandError(f"--metrics {address}: {error.strerror or error}") from error
    print(f"metrics on port {server.port}", file=sys.stderr, flush=True)
    try:
        yield metrics
    finally:
        server.close()


def name_servers(arguments: argparse.Namespace) -> None:
    """Pass the servers of the option or the profile to the program. Raises UsageError."""
    profile = profile_options(arguments)
    if arguments.bootstrap_server or profile.get("bootstrap_servers"):
        os.environ[SERVER_VARIABLE] = servers_of(arguments, profile=profile)


def _check_file(file: str) -> None:
    if Path(file).is_file():
        return
    if file.endswith((".py", *SPECS)) or "/" in file:
        raise UsageError(f"{file}: no such file")
    sys.path.insert(0, os.getcwd())
    try:
        found = importlib.util.find_spec(file)
    except (ImportError, ValueError):
        found = None
    if found is None:
        raise UsageError(f"{file}: neither a file nor a module")


def _check_packages(declarative: bool) -> None:
    for module, extra in [
        ("pyspark", "spark"),
        ("pyarrow", "spark"),
        *([("grpc", "pipelines")] if declarative else []),
    ]:
        if importlib.util.find_spec(module) is None:
            raise CommandError(f"{module} is missing: {install_hint(extra)}")


@contextlib.contextmanager
def _log(given: str | None) -> Iterator[Path]:
    """The file for Spark's messages: the user's, or one that only a failure leaves behind."""
    if given is not None:
        yield Path(given)
        return
    handle, name = tempfile.mkstemp(prefix="odradek-pipeline-", suffix=".log")
    os.close(handle)
    yield Path(name)
    Path(name).unlink(missing_ok=True)


# --- a program ---


def _run_program(arguments: argparse.Namespace, name: str, settings: dict[str, str], log: Path, shown: Shown) -> int:
    from odradek.spark.progress import Follower
    from odradek.spark.session import start_session

    session = start_session(arguments.master, name, settings, log)
    session.sparkContext.setLogLevel("WARN")
    stopping = Stopping(session, arguments.stop_timeout)
    follower = Follower(session, shown.progress, shown.failed, shown.lineage)
    try:
        follower.start()
        with handled(stopping.on_signal, signal.SIGTERM, signal.SIGINT):
            status = _execute(arguments, follower, stopping)
            follower.close()
            if follower.failures and not stopping.asked and not status:
                query, failure = next(iter(follower.failures.values()))
                raise CommandError(f"{query} failed: {_essence(failure)}")
    except KeyboardInterrupt:
        if not stopping.asked:
            raise
        status = 128 + signal.SIGTERM  # there was no query that could end by itself
    except Exception as error:
        if arguments.traceback:
            traceback.print_exc()
        kind = FailedAtStop if stopping.asked else CommandError
        raise kind(f"{reason(error)}; Spark's messages: {log}") from error
    finally:
        follower.close()
        _end(session, log)
    return status


def _execute(arguments: argparse.Namespace, follower: Follower, stopping: Stopping) -> int:
    """The program, and then its queries until they end or one fails. The exit status."""
    sys.argv = [arguments.file, *arguments.arguments]
    status = 0
    try:
        if Path(arguments.file).is_file():
            sys.path.insert(0, str(Path(arguments.file).absolute().parent))
            runpy.run_path(arguments.file, run_name="__main__")
        else:
            runpy.run_module(arguments.file, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if isinstance(ended.code, str):
            raise CommandError(ended.code) from ended
        status = ended.code or 0
    while not status and follower.is_busy() and (stopping.asked or not follower.failures):
        time.sleep(_WAIT_S)
    if stopping.asked:
        stopping.wait()
    return status


def _end(session: Any, log: Path) -> None:
    from odradek.spark.session import standard_error_to

    # what Java says while it ends is of no interest to the one at the terminal
    with contextlib.suppress(Exception), standard_error_to(log):
        session.stop()


class Shown:
    """Prints to standard error, from Spark's thread."""

    def __init__(self, how: str, metrics: PipelineMetrics | None = None, lineage: Lineage | None = None) -> None:
        self._how = how
        self._metrics = metrics
        self.lineage = lineage
        """What queries are reported to besides."""

    def progress(self, progress: Progress) -> None:
        """Print one micro-batch's progress, as --progress asks, and count it."""
        if self._metrics is not None:
            self._metrics.add(progress)
        if self._how == "none":
            return
        text = json.dumps(progress._asdict()) if self._how == "json" else progress.line()
        print(text, file=sys.stderr, flush=True)

    def failed(self, query: str, exception: str) -> None:
        """Print a query's failure, unless --progress excludes lines, and count it."""
        if self._metrics is not None:
            self._metrics.fail(query)
        if self._how == "lines":
            print(f"{query} failed: {_essence(exception)}", file=sys.stderr, flush=True)


class Stopping:
    """SIGTERM and SIGINT: let the batch in hand end, stop the queries, and let the program run to its end.

    The second signal stops at once. Queries are stopped on a thread of its own: the main one may be waiting for Java.
    """

    def __init__(self, session: Any, timeout_s: float) -> None:
        self._session = session
        self._timeout_s = timeout_s
        self._thread: threading.Thread | None = None
        self.asked = False

    def wait(self) -> None:
        """Wait until the queries have stopped, if a signal asked for it."""
        if self._thread is not None:
            self._thread.join()

    def on_signal(self, _number: int, _frame: object) -> None:
        """The handler of both signals."""
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        self._thread = threading.Thread(target=self._stop, name="stopping", daemon=True)
        self._thread.start()

    def _stop(self) -> None:
        queries = self._session.streams.active
        if not queries:
            # a batch job, or no query yet: interrupt whatever the program does
            self._session.sparkContext.cancelAllJobs()
            os.kill(os.getpid(), signal.SIGINT)
            return
        deadline = time.monotonic() + self._timeout_s
        batches = [_batch(each) for each in queries]
        for query, batch in zip(queries, batches, strict=True):
            # Between two batches, or at the very start of the next, nothing is lost by stopping.
            while query.isActive and query.status["isTriggerActive"] and _batch(query) == batch:
                if time.monotonic() > deadline:
                    break
                time.sleep(_LOOK_S)
            query.stop()


def _batch(query: Any) -> tuple[int, str] | None:
    last = query.lastProgress
    return None if last is None else (last["batchId"], last["timestamp"])


def reason(error: Exception) -> str:
    """One line for a failure of the user's program or of a query of it."""
    from pyspark.errors import PySparkException

    if isinstance(error, CommandError):
        return str(error)
    if isinstance(error, PySparkException):
        return _essence(str(error))
    place = next(
        (
            f" ({Path(each.filename).name}, line {each.lineno})"
            for each in reversed(traceback.extract_tb(error.__traceback__))
            if "pyspark" not in each.filename and "py4j" not in each.filename
        ),
        "",
    )
    first = str(error).strip().split("\n", 1)[0]
    return f"{type(error).__name__}: {first}{place}" if first else f"{type(error).__name__}{place}"


def _essence(text: str) -> str:
    """Of Spark's message the innermost Python error, which is what went wrong, else its first line."""
    if SLOW_START in text:
        return f"a Python process of Spark {SLOW_START}: it had not started within ten seconds"
    found = _PYTHON_ERROR.findall(text)
    first = text.strip().split("\n", 1)[0].strip()
    return str(found[-1]).strip() if found else first


# --- a spec ---


def _run_spec(arguments: argparse.Namespace, name: str, settings: dict[str, str], log: Path, shown: Shown) -> int:
    """Spark's own program for specs in a process of its own, which is a client of this one's Spark."""
    from odradek.spark.progress import Follower
    from odradek.spark.session import CONNECT_SETTINGS, TOKEN_VARIABLE, connect_url, start_session

    os.environ[TOKEN_VARIABLE] = secrets.token_hex(16)
    # settings of the spec that Spark takes only at its start have to be known now
    settings = {**CONNECT_SETTINGS, **_configuration(arguments.file), **settings}
    session = start_session(arguments.master, name, settings, log)
    follower = Follower(session, shown.progress, shown.failed, shown.lineage)
    environment = {**os.environ, "SPARK_REMOTE": connect_url(session)}
    try:
        follower.start()
        with log.open("ab") as output:
            process = subprocess.Popen(
                _spec_command(arguments), env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, encoding="utf-8", errors="backslashreplace", start_new_session=True,
            )  # fmt: skip
            with _forwarding(process) as stopped:
                assert process.stdout is not None
                lines = _copy(process.stdout, output, show=arguments.progress == "lines")
                status = process.wait()
    finally:
        follower.close()
        _end(session, log)
    if status and not stopped:
        raise CommandError(f"{_essence(chr(10).join(lines))}; Spark's messages: {log}")
    return 0


def _spec_command(arguments: argparse.Namespace) -> list[str]:
    command = [sys.executable, "-m", "pyspark.pipelines.cli", "dry-run" if arguments.dry_run else "run"]
    command += ["--spec", str(Path(arguments.file).absolute())]
    for option in ("refresh", "full_refresh"):
        for each in getattr(arguments, option):
            command += [f"--{option.replace('_', '-')}", each]
    return [*command, "--full-refresh-all"] if arguments.full_refresh_all else command


def _configuration(file: str) -> dict[str, str]:
    import yaml

    try:
        content = yaml.safe_load(Path(file).read_text())
        return {str(name): str(value) for name, value in content.get("configuration", {}).items()}
    except (OSError, AttributeError, yaml.YAMLError) as error:
        raise UsageError(f"{file} is not a pipeline specification: {str(error).splitlines()[0]}") from error


@contextlib.contextmanager
def _forwarding(process: subprocess.Popen[Any]) -> Iterator[list[int]]:
    """Signals end the client meanwhile, and Spark with this process after it; which they were."""
    seen: list[int] = []

    def forward(number: int, _frame: object) -> None:
        seen.append(number)
        with contextlib.suppress(ProcessLookupError):
            process.terminate()

    with handled(forward, signal.SIGTERM, signal.SIGINT):
        yield seen


def _copy(source: IO[str], log: IO[bytes], *, show: bool) -> Sequence[str]:
    """All lines to the log, those about the pipeline to standard error; the last ones."""
    last: list[str] = []
    for line in source:
        log.write(line.encode())
        log.flush()
        last = [*last[-200:], line.rstrip("\n")]
        if show and _EVENT.match(line):
            print(line.rstrip("\n"), file=sys.stderr, flush=True)
    return last
