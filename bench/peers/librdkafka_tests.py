#!/usr/bin/env python3
"""librdkafka 2.15.1's own integration tests against any Kafka broker, one process per test.

    librdkafka_tests.py build [--apt]                fetch the sources from npm and compile them once (about 3 minutes)
    librdkafka_tests.py run --bootstrap HOST:PORT [--list NAME|FILE|0001,0002] [--jobs 2] [--timeout 300]
                            [--retry] [--set name=value ...] [--json FILE] [--logs DIR] [--command-config FILE]
                                                     prints a line per test, longest first, and at the end
                                                     `N passed, M failed, K skipped`; exit status 1 when a test failed

Lists (librdkafka_NAME.txt beside this file; the comment is the time each test took on Apache Kafka 4.3.0):
    core         one broker, auto.create.topics.enable=true
    quick        the part of core that needs a few minutes
    tools        one broker; the tests run Apache's kafka-topics through kafka.py, so java and mvn must be on PATH
    cluster      three brokers, auto.create.topics.enable=true
    noautocreate three brokers, auto.create.topics.enable=false (librdkafka's scenario of that name)
    keys         one broker with TLS: keys and certificates in all forms, and logins (./dev interop --security)
    denials      one plaintext broker with an authorizer; the tests run Apache's kafka-acls

A test may take --timeout seconds, or twice the time in the list where that is more. --set adds client settings:
test.timeout.multiplier=3 for a slow broker, security.protocol=... for a secured one. librdkafka's own environment
variables TEST_CONSUMER_GROUP_PROTOCOL=consumer, SUBTESTS=name and TEST_DEBUG=cgrp,topic work too.
What the broker needs is in README.md.
Needs npm, gcc, g++ and make. Without the headers of OpenSSL, zstd, RapidJSON, curl, lz4 and zlib librdkafka is
built with less, and tests of what it lacks skip or fail; build --apt installs them on Debian, as root.
"""

import argparse
import concurrent.futures
import fcntl
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
CACHE = pathlib.Path(os.environ.get("PEERS_CACHE", pathlib.Path.home() / ".cache" / "peers")) / "librdkafka-2.15.1"
SOURCE = CACHE / "package" / "deps" / "librdkafka"
NPM = "@confluentinc/kafka-javascript@1.10.1"  # carries librdkafka 2.15.1 with its tests
DEBIAN = (
    "libssl-dev",
    "libzstd-dev",
    "rapidjson-dev",
    "libcurl4-openssl-dev",
    "liblz4-dev",
    "zlib1g-dev",
    "libsasl2-dev",
)
SCENARIOS = {
    "core": "default",
    "quick": "default",
    "tools": "default",
    "cluster": "default",
    "noautocreate": "noautocreate",
    "keys": "default",
    "denials": "default",
}
TOOL_TESTS = {"0045", "0052", "0077", "0109", "0115", "0119"}  # run $KAFKA_PATH/bin/kafka-topics.sh or kafka-acls.sh
LOCAL_TESTS = {"0097", "0133"}  # have parts that contact no broker
WITHOUT_SHARE_GROUPS = {"0135": "do_test:"}
"""The part of a test that has another one with share groups, unless SUBTESTS is set."""
running: set[subprocess.Popen[bytes]] = set()


def must(command: list[str], cwd: pathlib.Path, log: pathlib.Path) -> None:
    with open(log, "ab") as out:
        if subprocess.run(command, cwd=cwd, stdout=out, stderr=subprocess.STDOUT).returncode:
            sys.exit(f"librdkafka_tests.py: {' '.join(command)} failed, see {log}")


def look_for_packages(log: pathlib.Path, apt: bool) -> None:
    if not shutil.which("dpkg-query"):
        return  # not Debian: configure reports what it misses
    query = ["dpkg-query", "-W", "-f", "${Status}"]
    found = {p: subprocess.run([*query, p], capture_output=True).stdout for p in DEBIAN}
    missing = [p for p, status in found.items() if b"install ok installed" not in status]
    if missing and apt:
        must(["apt-get", "-q", "update"], CACHE, log)
        must(["apt-get", "-q", "-y", "install", *missing], CACHE, log)
    elif missing:
        print(f"building without {' '.join(missing)}: some tests will skip or fail", flush=True)


def build(apt: bool = False) -> None:
    if (CACHE / "complete").exists():
        return
    CACHE.parent.mkdir(parents=True, exist_ok=True)
    with open(CACHE.parent / f"{CACHE.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a second process waits for the first one's build
        if not (CACHE / "complete").exists():
            build_locked(apt)


def build_locked(apt: bool) -> None:
    shutil.rmtree(CACHE, ignore_errors=True)
    CACHE.mkdir()
    log = CACHE / "build.log"
    print(f"building librdkafka 2.15.1 in {CACHE}", flush=True)
    look_for_packages(log, apt)
    must(["npm", "pack", "--silent", NPM], CACHE, log)
    must(["tar", "xzf", str(next(CACHE.glob("*.tgz")))], CACHE, log)
    for script in ("configure", "lds-gen.py"):
        (SOURCE / script).chmod(0o755)
    must(["./configure"], SOURCE, log)
    must(["make", "-j2", "libs"], SOURCE, log)
    must(["make", "-j2", "-C", "tests", "build"], SOURCE, log)
    (CACHE / "complete").touch()


def read_list(name: str) -> dict[str, float]:
    """Test numbers and seconds (`0026  # 52.1 s`, else 0), longest first."""
    if re.fullmatch(r"\d{4}(,\d{4})*", name):
        return dict.fromkeys(name.split(","), 0.0)
    path = HERE / f"librdkafka_{name}.txt" if name in SCENARIOS else pathlib.Path(name)
    if not path.is_file():
        sys.exit(f"librdkafka_tests.py: no list {name}: name one of {', '.join(SCENARIOS)}, a file or 0001,0002")
    seconds: dict[str, float] = {}
    for line in path.read_text().splitlines():
        numbers, _, comment = line.partition("#")
        took = re.match(r"\s*([\d.]+) s", comment)
        seconds.update((n, float(took[1]) if took else 0.0) for n in re.findall(r"\d{4}", numbers))
    return dict(sorted(seconds.items(), key=lambda item: -item[1]))


def check_broker(bootstrap: str) -> None:
    host, _, port = bootstrap.split(",", maxsplit=1)[0].rpartition(":")
    try:
        socket.create_connection((host, int(port)), 5).close()
    except (OSError, ValueError) as error:
        sys.exit(f"librdkafka_tests.py: no broker at {bootstrap}: {error}")


def verdict(status: int | None, output: str, limit: float) -> tuple[str, str]:
    """A test number stands for several test functions: it passed if none failed and at least one ran."""
    output = re.sub(r"\x1b\[[0-9;]*m", "", output)
    states = dict(re.findall(r"^\| (\d{4}_\w+) +\| +([A-Z ]+?) \|", output, re.MULTILINE))
    if status == 0 and "PASSED" in states.values():
        return "pass", ""
    if status == 0:
        reasons = re.findall(r"SKIPPING TEST: (.*)", output)
        return "skip", reasons[0].strip() if reasons else "every part is local or of another scenario"
    failures = re.findall(r'### Test "(?!<MAIN>)(.*?)" failed at .*\n(.*)', output)
    why = ": ".join(failures[0]) if failures else (output.strip().splitlines() or ["no output"])[-1]
    return "fail", f"timed out after {limit:g} s: {why}" if status is None else f"status {status}: {why}"


def _write_tool(path: pathlib.Path, name: str, command_config: str | None) -> None:
    """One of Apache's tools, which gets a file of settings where the test knows of none."""
    more = f' --command-config "{command_config}"' if command_config else ""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'#!/bin/sh\nexec "{HERE}/kafka.py" tool {name} "$@"{more}\n')
    path.chmod(0o755)


def run_one(
    number: str,
    bootstrap: str,
    settings: list[str],
    scenario: str,
    limit: float,
    logs: pathlib.Path,
    command_config: str | None,
) -> dict[str, object]:
    home = logs / number
    home.mkdir(exist_ok=True)
    (home / "fixtures").symlink_to(SOURCE / "tests" / "fixtures")
    config = ["test.topic.random=true", *settings, f"metadata.broker.list={bootstrap}"]
    (home / "test.conf").write_text("".join(f"{line}\n" for line in config))
    env = {
        "TEST_KAFKA_VERSION": "4.2.0",
        **os.environ,
        "TESTS": number,
        "TEST_SCENARIO": scenario,
        "RDKAFKA_TEST_CONF": str(home / "test.conf"),
        "LD_LIBRARY_PATH": f"{SOURCE}/src:{SOURCE}/src-cpp",
    }
    if number in WITHOUT_SHARE_GROUPS:
        env.setdefault("SUBTESTS", WITHOUT_SHARE_GROUPS[number])
    if number in TOOL_TESTS:
        for name in ("topics", "acls"):
            _write_tool(home / "bin" / f"kafka-{name}.sh", name, command_config)
        env.update(KAFKA_PATH=str(home), BROKERS=bootstrap)
    began = time.monotonic()
    with open(home / "log", "wb") as log:
        child = subprocess.Popen(
            [str(SOURCE / "tests" / "test-runner"), "-p1", "-E", *([] if number in LOCAL_TESTS else ["-L"])],
            cwd=home,
            env=env,
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        running.add(child)
        try:
            status: int | None = child.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            status = None
        running.discard(child)
    seconds = time.monotonic() - began
    output = (home / "log").read_text(errors="replace")
    result, reason = verdict(status, output, limit)
    skipped_parts = re.findall(r"\[ (\S+?)(?::\d+)?: SKIP: (.*?)\s*\]", output)
    return {
        "test": number,
        "result": result,
        "seconds": round(seconds, 1),
        "reason": reason,
        "skipped_parts": sorted({f"{part}: {why}" for part, why in skipped_parts}),
        "log": str(home / "log"),
    }


def report(r: dict[str, object]) -> dict[str, object]:
    where = f"{r['reason']} ({r['log']})" if r["result"] == "fail" else r["reason"]
    print(f"{r['result']} {r['test']} {r['seconds']:6} s  {where}".rstrip(), flush=True)
    return r


def run(args: argparse.Namespace) -> int:
    tests = read_list(args.list)
    check_broker(args.bootstrap)
    build()
    scenario = SCENARIOS.get(args.list, os.environ.get("TEST_SCENARIO", "default"))
    logs = pathlib.Path(args.logs or tempfile.mkdtemp(prefix="librdkafka-tests-")).resolve()
    logs.mkdir(parents=True, exist_ok=True)
    if not (logs / "src").is_symlink():
        (logs / "src").symlink_to(SOURCE / "src")  # 0053 reads ../src/statistics_schema.json
    results: list[dict[str, object]] = []
    pool = concurrent.futures.ThreadPoolExecutor(args.jobs)

    def start(number: str) -> concurrent.futures.Future[dict[str, object]]:
        limit = max(args.timeout, 2 * tests[number])
        return pool.submit(run_one, number, args.bootstrap, args.set, scenario, limit, logs, args.command_config)

    try:
        for done in concurrent.futures.as_completed([start(number) for number in tests]):
            results.append(report(done.result()))  # noqa: PERF401  each is reported as it comes
        for r in [r for r in results if args.retry and r["result"] == "fail"]:
            print(f"again, alone: {r['test']}", flush=True)
            home = logs / str(r["test"])
            shutil.rmtree(logs / f"{home.name}-first", ignore_errors=True)
            home.rename(logs / f"{home.name}-first")
            results[results.index(r)] = report(start(home.name).result()) | {"first_reason": r["reason"]}
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in list(running):
            os.killpg(child.pid, signal.SIGKILL)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(sorted(results, key=lambda r: str(r["test"])), indent=1) + "\n")
    count = {kind: sum(r["result"] == kind for r in results) for kind in ("pass", "fail", "skip")}
    if not (args.logs or count["fail"]):
        shutil.rmtree(logs)
    print(f"{count['pass']} passed, {count['fail']} failed, {count['skip']} skipped")
    return 1 if count["fail"] else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = parser.add_subparsers(dest="command", required=True)
    b = sub.add_parser("build")
    b.add_argument("--apt", action="store_true", help="install missing headers with apt-get (Debian, as root)")
    r = sub.add_parser("run")
    r.add_argument("--bootstrap", required=True, metavar="HOST:PORT")
    r.add_argument("--list", default="core")
    r.add_argument("--timeout", type=float, default=300, metavar="SECONDS", help="per test")
    r.add_argument("--jobs", type=int, default=1)
    r.add_argument("--retry", action="store_true", help="run failed tests again, alone, and count that result")
    r.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    r.add_argument("--command-config", metavar="FILE", help="settings for Apache's tools that tests run")
    r.add_argument("--json", metavar="FILE")
    r.add_argument("--logs", metavar="DIR", help="keep every log here; else only those of a run with failures are kept")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if args.command == "build":
        build(args.apt)
    else:
        sys.exit(run(args))


if __name__ == "__main__":
    main()
