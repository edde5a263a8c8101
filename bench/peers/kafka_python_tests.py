#!/usr/bin/env python3
"""kafka-python 3.0.12's own integration tests against any Kafka broker.

    kafka_python_tests.py build                      fetch the sdist and make a virtual environment for it once
    kafka_python_tests.py run --bootstrap HOST:PORT [--timeout 60] [--limit 900] [--kafka-version 4.3.0]
                              [--json FILE] [-- PYTEST_ARGS...]
                                                     pytest's line per test, then `N passed, M failed, K skipped`;
                                                     exit status 1 when a test failed

What the broker needs (Apache Kafka's names): auto.create.topics.enable=true, num.partitions=4, a broker with id 0,
group.min.session.timeout.ms at most 3000, advertised.listeners set in the configuration and reported as such by
DescribeConfigs, and ACLs that the anonymous user may change. --kafka-version is the release whose ApiVersions table
the broker shows. Useful PYTEST_ARGS: -k NAME, -x, --show-capture=log.
"""

import argparse
import fcntl
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import venv
import xml.etree.ElementTree as ET

CACHE = pathlib.Path(os.environ.get("PEERS_CACHE", pathlib.Path.home() / ".cache" / "peers")) / "kafka-python-3.0.12"
SOURCE = CACHE / "kafka_python-3.0.12"
PYTHON = CACHE / "venv" / "bin" / "python"
PACKAGES = [
    "pytest==9.0.2",
    "pytest-timeout==2.4.0",
    "pytest-mock==3.15.1",
    "py==1.11.0",
    "python-snappy==0.7.3",
    "lz4==4.4.5",
    "zstandard==0.25.0",
]
IGNORED = ("test_sasl_integration.py", "test_ssl_integration.py")  # they start a Kafka of their own, see --secured
PLUGIN = pathlib.Path(__file__).resolve().with_name("kafka_python_secured.py")
SERVICE = '''"""Stands in for a module that the sdist lacks: the broker is started elsewhere."""


class ExternalService:
    def __init__(self, *args): pass
    def open(self): pass
    def close(self): pass
    def stop(self): pass
    def dump_logs(self): pass


class SpawnedService(ExternalService):
    pass
'''


def must(*command: str) -> None:
    if subprocess.run(command, cwd=CACHE).returncode:
        sys.exit(f"kafka_python_tests.py: {' '.join(command)} failed")


def build() -> None:
    if (CACHE / "complete").exists():
        return
    CACHE.parent.mkdir(parents=True, exist_ok=True)
    with open(CACHE.parent / f"{CACHE.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a second process waits for the first one's build
        if not (CACHE / "complete").exists():
            build_locked()


def build_locked() -> None:
    shutil.rmtree(CACHE, ignore_errors=True)
    CACHE.mkdir()
    print(f"fetching kafka-python 3.0.12 into {CACHE}", flush=True)
    venv.create(CACHE / "venv", with_pip=True)
    pip = (str(PYTHON), "-m", "pip", "-q", "--disable-pip-version-check")
    must(*pip, "install", *PACKAGES)
    must(*pip, "download", "--no-binary", ":all:", "--no-deps", "kafka-python==3.0.12")
    must("tar", "xzf", str(next(CACHE.glob("*.tar.gz"))))
    (SOURCE / "test" / "__init__.py").touch()
    (SOURCE / "test" / "service.py").write_text(SERVICE)
    (CACHE / "complete").touch()


def results(report: pathlib.Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for case in ET.parse(report).getroot().iter("testcase"):
        bad, skipped = [e for e in case if e.tag in ("failure", "error")], case.find("skipped")
        kind = "fail" if bad else "pass" if skipped is None else "skip"
        reason = bad[0].get("message", "") if bad else "" if skipped is None else skipped.get("message", "")
        found.append(
            {
                "test": f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}",
                "result": kind,
                "seconds": round(float(case.get("time", 0)), 1),
                "reason": reason,
            }
        )
    return found


def run(args: argparse.Namespace) -> int:
    host, _, port = args.bootstrap.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 5).close()
    except (OSError, ValueError) as error:
        sys.exit(f"kafka_python_tests.py: no broker at {args.bootstrap}: {error}")
    build()
    with tempfile.TemporaryDirectory(prefix="kafka-python-tests-") as home:
        report = pathlib.Path(home) / "report.xml"
        env = {
            **os.environ,
            "KAFKA_ROOT": home,
            "KAFKA_VERSION": args.kafka_version,
            "KAFKA_URI": f"kafka://{args.bootstrap}",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        ignored: tuple[str, ...] = IGNORED
        plugin: list[str] = []
        if args.secured:
            # Not this folder itself on the path: its kafka.py would hide the package.
            shutil.copy(PLUGIN, home)
            del env["KAFKA_URI"]
            env |= {"ODRADEK_SECURED": args.secured, "PYTHONPATH": home}
            ignored, plugin = (), ["-p", PLUGIN.stem]
        command = [
            str(PYTHON),
            "-m",
            "pytest",
            "test/integration",
            "-v",
            "--tb=short",
            "--show-capture=no",
            "-p",
            "no:cacheprovider",
            "--timeout",
            str(args.timeout),
            "--timeout-method",
            "signal",
            f"--junitxml={report}",
            *plugin,
            *(f"--ignore=test/integration/{f}" for f in ignored),
            *(["-k", " and ".join(f"not {name}" for name in args.without)] if args.without else []),
            *args.pytest_args,
        ]
        child = subprocess.Popen(command, cwd=SOURCE, env=env, stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            child.wait(args.limit)
        except subprocess.TimeoutExpired:
            print(f"kafka_python_tests.py: stopped after {args.limit:g} s")
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        if not report.exists():
            sys.exit("kafka_python_tests.py: pytest wrote no report")
        found = results(report)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(found, indent=1) + "\n")
    count = {kind: sum(r["result"] == kind for r in found) for kind in ("pass", "fail", "skip")}
    print(f"{count['pass']} passed, {count['fail']} failed, {count['skip']} skipped")
    return 1 if count["fail"] or not found else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = parser.add_subparsers(dest="command", required=True)
    sub.add_parser("build")
    r = sub.add_parser("run")
    r.add_argument("--bootstrap", required=True, metavar="HOST:PORT")
    r.add_argument("--timeout", type=float, default=60, metavar="SECONDS", help="per test")
    r.add_argument("--limit", type=float, default=900, metavar="SECONDS", help="for the whole run")
    r.add_argument("--kafka-version", default="4.3.0", help="release whose ApiVersions table the broker shows")
    r.add_argument("--json", metavar="FILE")
    r.add_argument("--secured", metavar="JSON", help="a broker with TLS and SASL, as kafka_python_secured.py wants it")
    r.add_argument("--without", nargs="+", metavar="TEST", help="names of tests to leave out")
    r.add_argument("pytest_args", nargs="*", metavar="PYTEST_ARGS")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if args.command == "build":
        build()
    else:
        sys.exit(run(args))


if __name__ == "__main__":
    main()
