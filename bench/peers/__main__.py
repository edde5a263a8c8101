"""./dev interop: run other clients' own test suites against a broker.

Without --bootstrap it starts a broker of ours on a free port with an empty data directory, configured as the suites
need it (README.md in this folder), and stops it at the end.
"""

import argparse
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.peers.broker import BrokerProcess
from bench.peers.cluster import ClusterProcess

HERE = Path(__file__).resolve().parent
SETTINGS = {
    "auto.create.topics.enable": "true",
    "num.partitions": 4,
    "group.initial.rebalance.delay.ms": 500,
    "group.min.session.timeout.ms": 1000,
    "broker.id": 0,
}
SUITES = ("librdkafka", "kafka-python", "spark")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def command(suite: str, bootstrap: str, args: argparse.Namespace) -> list[str]:
    if suite == "librdkafka":
        script = [str(HERE / "librdkafka_tests.py"), "run", "--list", args.list, "--jobs", str(args.jobs)]
        script += ["--retry"] if args.retry else []
    elif suite == "kafka-python":
        script = [str(HERE / "kafka_python_tests.py"), "run"]
        script += ["--without", *args.without] if args.without else []
    else:
        script = [str(HERE / "spark_connector.py"), "bench", "--rows", str(args.rows), "--repeat", "1"]
    return [sys.executable, script[0], script[1], "--bootstrap", bootstrap, *script[2:]]


def run(bootstrap: str, args: argparse.Namespace) -> bool:
    results = []
    for suite in args.suite or SUITES[:2]:
        print(f"== {suite} against {bootstrap}", flush=True)
        began, last = time.monotonic(), ""
        with subprocess.Popen(command(suite, bootstrap, args), stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            for line in child.stdout:
                print(line, end="", flush=True)
                last = line.strip() or last
        results.append((suite, child.returncode, f"{last} ({time.monotonic() - began:.0f} s)"))
    for suite, status, last in results:
        print(f"{suite}: {'ok' if status == 0 else 'FAILED'}: {last}")
    return all(status == 0 for _, status, _ in results)


def on_cluster(home: Path, args: argparse.Namespace) -> int:
    settings: dict[str, object] = {name: value for name, value in SETTINGS.items() if name != "broker.id"}
    settings |= {
        "broker.rack": "RACK{id}",
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        "default.replication.factor": 3,
        "min.insync.replicas": 1,
    }
    if args.list == "noautocreate":
        settings["auto.create.topics.enable"] = "false"
    settings |= dict(item.split("=", 1) for item in args.set)
    with ClusterProcess(home / "data", args.brokers, settings) as cluster:
        good = run(cluster.bootstrap, args)
    print(f"the brokers' log: {cluster.log_path}")
    return 0 if good else 1


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="./dev interop", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("suite", nargs="*", metavar="SUITE", help=f"of {', '.join(SUITES)}; default the first two")
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="a broker that already runs")
    parser.add_argument(
        "--list",
        default="quick",
        help="librdkafka tests: quick, core, tools, cluster, noautocreate or 0001,0002 (default quick)",
    )
    parser.add_argument("--jobs", type=int, default=2, help="librdkafka tests at a time")
    parser.add_argument("--retry", action="store_true", help="run failed librdkafka tests again, alone")
    parser.add_argument("--without", nargs="+", metavar="TEST", help="tests of kafka-python to leave out")
    parser.add_argument("--rows", type=int, default=200_000, help="for the suite spark")
    parser.add_argument("--brokers", type=int, default=1, help="a cluster of so many instead of one broker")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="for the broker started here")
    args = parser.parse_args()
    if unknown := set(args.suite) - set(SUITES):
        parser.error(f"no suite {', '.join(sorted(unknown))}")
    if args.bootstrap:
        return 0 if run(args.bootstrap, args) else 1
    home = Path(tempfile.mkdtemp(prefix="odradek-interop-"))
    if args.brokers > 1:
        return on_cluster(home, args)
    port = free_port()
    # A test of kafka-python wants to see the setting.
    settings: dict[str, object] = {**SETTINGS, "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    settings |= dict(item.split("=", 1) for item in args.set)
    with BrokerProcess(home / "data", settings, port) as broker:
        good = run(broker.bootstrap, args)
    print(f"broker's log: {broker.log_path}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
