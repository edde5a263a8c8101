#!/usr/bin/env python3
"""Apache Kafka 4.3.0 as a peer: fetch it, run 1..N KRaft brokers on loopback, run its own command-line tools.

    kafka.py fetch                                   fetch the jars from Maven Central once (about 60 MB)
    kafka.py run [--brokers 3] [--port 19092|0] [--dir D] [--set name=value ...] [--for 600] [--quick]
                                                     foreground; prints one line `ready BOOTSTRAP pids=... seconds=...`,
                                                     ends on SIGTERM, SIGINT or after --for seconds; --quick: Java
                                                     starts sooner and works slower, for tests that measure nothing
    kafka.py tool NAME ARGS...                       one of Apache's own tools against any broker, ours included:
                                                     topics, configs, console-producer, dump-log, ...
    kafka.py java MAIN_CLASS ARGS...                 any main class on the same class path
    kafka.py classpath                               the class path, for javac and java

Uses the Java of JAVA_HOME, or java on PATH (17+), and the jars of KAFKA_HOME/libs where that is set; else mvn.
Broker i listens on port + 100*i, its controller on that + 1; --port 0 finds free ones. Everything is on 127.0.0.1.
{id} in a value of --set stands for the broker's id, 1..N, {port} for its port, {controller} for its controller's.
"""

import argparse
import base64
import fcntl
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid

HERE = pathlib.Path(__file__).resolve().parent
CACHE = pathlib.Path(os.environ.get("PEERS_CACHE", pathlib.Path.home() / ".cache" / "peers")) / "kafka-4.3.0"
TOOLS = {
    "topics": "org.apache.kafka.tools.TopicCommand",
    "configs": "kafka.admin.ConfigCommand",
    "acls": "org.apache.kafka.tools.AclCommand",
    "groups": "org.apache.kafka.tools.GroupsCommand",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "streams-groups": "org.apache.kafka.tools.streams.StreamsGroupCommand",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "console-share-consumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "share-consumer-perf-test": "org.apache.kafka.tools.ShareConsumerPerformance",
    "e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "cluster": "org.apache.kafka.tools.ClusterTool",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "metadata-shell": "org.apache.kafka.shell.MetadataShell",
    "metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "replica-verification": "org.apache.kafka.tools.ReplicaVerificationTool",
    "dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "log-compaction-tester": "org.apache.kafka.tools.LogCompactionTester",
    "client-compatibility-test": "org.apache.kafka.tools.ClientCompatibilityTest",
    "verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "verifiable-share-consumer": "org.apache.kafka.tools.VerifiableShareConsumer",
    "transactional-message-copier": "org.apache.kafka.tools.TransactionalMessageCopier",
    "streams-application-reset": "org.apache.kafka.tools.StreamsResetter",
    "connect-mirror-maker": "org.apache.kafka.connect.mirror.MirrorMaker",
    "connect-standalone": "org.apache.kafka.connect.cli.ConnectStandalone",
    "connect-distributed": "org.apache.kafka.connect.cli.ConnectDistributed",
    "storage": "kafka.tools.StorageTool",
}
HEAP = {"broker": ["-Xms1G", "-Xmx1G"], "tool": ["-Xmx512M"]}
QUICK = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
"""For programs that run for seconds: two thirds of the processor time, because Java compiles less."""
MEASURING = ("producer-perf-test", "consumer-perf-test", "share-consumer-perf-test", "e2e-latency")
JVM = [
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
]  # the flags of Apache's own start script


def java() -> str:
    home = os.environ.get("JAVA_HOME")
    return str(pathlib.Path(home) / "bin" / "java") if home else "java"


def classpath() -> str:
    if home := os.environ.get("KAFKA_HOME"):
        return str(pathlib.Path(home) / "libs" / "*")
    fetch()
    return str(CACHE / "lib" / "*")


def is_fetched() -> bool:
    """Whether all jars that the present list names are there."""
    listed = CACHE / "pom.xml"
    is_current = listed.exists() and listed.read_bytes() == (HERE / "kafka_pom.xml").read_bytes()
    return is_current and (CACHE / "complete").exists()


def fetch() -> None:
    if is_fetched():
        return
    if not shutil.which("mvn"):
        sys.exit("kafka.py: no mvn on PATH to fetch Apache Kafka with; install one or set KAFKA_HOME to a Kafka 4.3.0")
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE.parent / f"{CACHE.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a second process waits for the first one's download
        if is_fetched():
            return
        (CACHE / "complete").unlink(missing_ok=True)
        shutil.copy(HERE / "kafka_pom.xml", CACHE / "pom.xml")
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"]
        # even a quiet Maven writes escape sequences, which would stand before the "ready" that callers look for
        if subprocess.run(command, cwd=CACHE, stdout=sys.stderr).returncode:
            sys.exit("kafka.py: mvn could not fetch Apache Kafka")
        (CACHE / "complete").touch()


def answers(port: int) -> bool:
    """True once the broker answers ApiVersions: a port that only accepts is not ready."""
    try:
        with socket.create_connection(("127.0.0.1", port), 0.5) as s:
            s.settimeout(2)
            s.sendall(bytes.fromhex("0000000a0012000000000001ffff"))
            return bool(s.recv(4))
    except OSError:
        return False


def free_ports(brokers: int) -> int:
    """A port whose neighbours for all listeners are free, below the range from which clients' own ports come."""
    for port in random.sample(range(12_000, 31_000, 2), 200):
        try:
            for i in range(brokers):
                for listener in (port + 100 * i, port + 100 * i + 1):
                    with socket.socket() as sock:
                        sock.bind(("127.0.0.1", listener))
        except OSError:
            continue
        return port
    sys.exit("kafka.py: found no free ports")


def filled(setting: str, broker: int, port: int) -> str:
    """A value of --set for one broker."""
    places = {"{id}": broker, "{port}": port, "{controller}": port + 1}
    for place, value in places.items():
        setting = setting.replace(place, str(value))
    return setting


def run(args: argparse.Namespace) -> None:
    cp, home = classpath(), pathlib.Path(args.dir or tempfile.mkdtemp(prefix="kafka-peer-"))
    home.mkdir(parents=True, exist_ok=True)
    first = args.port or free_ports(args.brokers)
    ports = [first + 100 * i for i in range(args.brokers)]
    voters = ",".join(f"{i + 1}@127.0.0.1:{p + 1}" for i, p in enumerate(ports))
    rf = min(3, args.brokers)
    for port in ports:
        if answers(port):
            sys.exit(f"kafka.py: something already serves on 127.0.0.1:{port}; choose another --port")
    (home / "log4j2.yaml").write_text(
        "Configuration:\n  Appenders:\n    Console:\n      name: STDOUT\n"
        "      PatternLayout: {pattern: '%d %p %c %m%n'}\n"
        "  Loggers:\n    Root:\n      level: WARN\n      AppenderRef: {ref: STDOUT}\n"
    )
    # a cluster id that begins with "-" would read as an option of the storage tool
    cluster, children, began = "k" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:], [], None
    for i, port in enumerate(ports, 1):
        conf = home / f"server-{i}.properties"
        settings = {
            "process.roles": "broker,controller",
            "node.id": i,
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{port + 1}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": home / f"data-{i}",
            "group.initial.rebalance.delay.ms": 0,
            "num.partitions": 4,
            "offsets.topic.replication.factor": rf,
            "transaction.state.log.replication.factor": rf,
            "transaction.state.log.min.isr": max(1, rf - 1),
            "share.coordinator.state.topic.replication.factor": rf,
            "share.coordinator.state.topic.min.isr": max(1, rf - 1),
            "default.replication.factor": rf,
        }
        for given in args.set:
            name, value = filled(given, i, port).split("=", 1)
            settings[name] = value
        conf.write_text("".join(f"{k}={v}\n" for k, v in settings.items()))
        if not (home / f"data-{i}" / "meta.properties").exists():
            subprocess.run(
                [java(), *QUICK, "-cp", cp, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", conf],
                check=True,
                stdout=subprocess.DEVNULL,
            )
    began = time.monotonic()
    for i, _ in enumerate(ports, 1):
        log = open(home / f"broker-{i}.log", "ab")  # noqa: SIM115  the child writes it
        children.append(
            subprocess.Popen(
                [
                    java(),
                    *HEAP["broker"],
                    *(QUICK if args.quick else JVM),
                    f"-Dlog4j2.configurationFile={home}/log4j2.yaml",
                    "-cp",
                    cp,
                    "kafka.Kafka",
                    str(home / f"server-{i}.properties"),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        )

    def stop(*_: object) -> None:
        for child in children:
            child.terminate()
        for child in children:
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
        sys.exit(0)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    while not all(map(answers, ports)):
        if time.monotonic() - began > 90 or any(c.poll() is not None for c in children):
            ended = [c.poll() for c in children]
            print(f"kafka.py: broker did not start, ended with {ended}, see {home}", file=sys.stderr)
            stop()
        time.sleep(0.02)
    print(
        "ready",
        ",".join(f"127.0.0.1:{p}" for p in ports),
        "pids=" + ",".join(str(c.pid) for c in children),
        f"seconds={time.monotonic() - began:.2f}",
        f"dir={home}",
        flush=True,
    )
    end = time.monotonic() + args.seconds
    while time.monotonic() < end:
        time.sleep(0.2)
    stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = parser.add_subparsers(dest="command", required=True)
    sub.add_parser("fetch")
    sub.add_parser("classpath")
    r = sub.add_parser("run")
    r.add_argument("--brokers", type=int, default=1)
    r.add_argument("--port", type=int, default=19092)
    r.add_argument("--dir")
    r.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    r.add_argument("--for", dest="seconds", type=float, default=600)
    r.add_argument("--quick", action="store_true")
    t = sub.add_parser("tool")
    t.add_argument("name", choices=sorted(TOOLS))
    t.add_argument("args", nargs=argparse.REMAINDER)
    j = sub.add_parser("java")
    j.add_argument("args", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    if args.command == "fetch":
        fetch()
    elif args.command == "classpath":
        print(classpath())
    elif args.command == "run":
        run(args)
    else:
        main_class = [TOOLS[args.name]] if args.command == "tool" else []
        flags = [] if args.command == "tool" and args.name in MEASURING else QUICK
        os.execvp(java(), [java(), *HEAP["tool"], *flags, "-cp", classpath(), *main_class, *args.args])


if __name__ == "__main__":
    main()
