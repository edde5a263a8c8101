"""./dev interop: run other clients' own test suites against a broker.

Without --bootstrap it starts a broker of ours on a free port with an empty data directory, configured as the suites
need it (README.md in this folder), and stops it at the end. With --security clients speak TLS and log in.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from bench.peers.broker import BrokerProcess
from bench.peers.cluster import ClusterProcess
from bench.peers.issuer import Issuer
from bench.peers.kdc import Kdc, missing_program
from bench.peers.late_relay import LateRelay
from bench.peers.secured import (
    CERTIFICATES,
    HOST,
    MECHANISMS,
    PASSWORD,
    USER,
    SecuredBroker,
    SecuredCluster,
    Security,
    free_ports,
)

HERE = Path(__file__).resolve().parent
SETTINGS = {
    "auto.create.topics.enable": "true",
    "num.partitions": 4,
    "group.initial.rebalance.delay.ms": 500,
    "group.min.session.timeout.ms": 1000,
    "broker.id": 0,
}
DENIALS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
"""For librdkafka's list of that name: what no ACL of a test denies is allowed."""
SUITES = ("librdkafka", "kafka-python", "spark", "aiokafka", "franz-go")
ONLY_SECURED = ("aiokafka", "franz-go")
"""Their tests of logins are run here, which need a broker that has users."""


def command(
    suite: str, bootstrap: str, args: argparse.Namespace, secured: SecuredBroker | SecuredCluster | None
) -> list[str]:
    if suite == "librdkafka":
        script = [str(HERE / "librdkafka_tests.py"), "run", "--list", args.list, "--jobs", str(args.jobs)]
        script += ["--retry"] if args.retry else []
        if secured:
            security = secured.security
            script += [part for setting in security.of_librdkafka() for part in ("--set", setting)]
            script += ["--command-config", str(security.operator_file(secured.operator_bootstrap))]
    elif suite == "kafka-python":
        script = [str(HERE / "kafka_python_tests.py"), "run"]
        if isinstance(secured, SecuredBroker):
            security = secured.security
            known = {"ports": secured.ports, "authority": str(security.authority)}
            script += ["--secured", json.dumps({**known, "default": ["SASL_SSL", security.mechanism]})]
        script += ["--without", *args.without] if args.without else []
    elif suite in ONLY_SECURED:
        assert isinstance(secured, SecuredBroker)
        return [sys.executable, *_secured_command(suite, secured, args)]
    else:
        script = [str(HERE / "spark_connector.py"), "bench", "--rows", str(args.rows), "--repeat", "1"]
    return [sys.executable, script[0], script[1], "--bootstrap", bootstrap, *script[2:]]


def _secured_command(suite: str, broker: SecuredBroker, args: argparse.Namespace) -> list[str]:
    address = {protocol: f"127.0.0.1:{port}" for protocol, port in broker.ports.items()}
    if suite == "aiokafka":
        where = ["--source", args.aiokafka, "--bootstrap", address["SASL_PLAINTEXT"]]
        if args.tls:
            where = ["--source", args.aiokafka, "--bootstrap", address["SASL_SSL"]]
            where += ["--authority", str(broker.security.authority)]
        return [
            str(HERE / "aiokafka_tests.py"),
            *where,
            "--admin",
            str(broker.security.operator_file(broker.bootstrap)),
        ]
    script = [str(HERE / "franz_go_tests.py"), "--scram", address["SASL_PLAINTEXT"], "--tls", address["SSL"]]
    return [*script, "--ca", str(broker.security.authority), "--user", USER, "--password", PASSWORD]


def run(
    bootstrap: str,
    args: argparse.Namespace,
    secured: SecuredBroker | SecuredCluster | None = None,
    environment: Mapping[str, str] | None = None,
) -> bool:
    results = []
    for suite in args.suite or SUITES[:2]:
        print(f"== {suite} against {bootstrap}", flush=True)
        began, last = time.monotonic(), ""
        env = {**os.environ, **(environment or {})}
        with subprocess.Popen(
            command(suite, bootstrap, args, secured), stdout=subprocess.PIPE, text=True, env=env
        ) as child:
            assert child.stdout is not None
            for line in child.stdout:
                print(line, end="", flush=True)
                last = line.strip() or last
        results.append((suite, child.returncode, f"{last} ({time.monotonic() - began:.0f} s)"))
    for suite, status, last in results:
        print(f"{suite}: {'ok' if status == 0 else 'FAILED'}: {last}")
    return all(status == 0 for _, status, _ in results)


def cluster_settings(args: argparse.Namespace) -> dict[str, object]:
    settings: dict[str, object] = {name: value for name, value in SETTINGS.items() if name != "broker.id"}
    settings |= {
        "broker.rack": "RACK{id}",
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        "default.replication.factor": 3,
        "min.insync.replicas": 1,
    }
    if args.list == "noautocreate":
        settings["auto.create.topics.enable"] = "false"
    return settings | dict(item.split("=", 1) for item in args.set)


def on_cluster(home: Path, args: argparse.Namespace) -> int:
    with ClusterProcess(home / "data", args.brokers, cluster_settings(args)) as cluster:
        good = run(cluster.bootstrap, args)
    print(f"the brokers' log: {cluster.log_path}")
    return 0 if good else 1


def secured(home: Path, args: argparse.Namespace) -> int:
    """With TLS and SASL."""
    with contextlib.ExitStack() as stack:
        environment: dict[str, str] = {}
        url = ""
        if args.security == "OAUTHBEARER":
            url = stack.enter_context(Issuer(USER, "kafka")).url
            for name, path in (("VALID", "token"), ("EXPIRED_TOKEN", "expired"), ("INVALID", "invalid")):
                environment[f"{name}_OIDC_URL"] = f"{url}/{path}"
        keys: dict[str, str] = {}
        if args.security == "GSSAPI":
            kdc = stack.enter_context(Kdc(home / "kdc"))
            keys = {name: kdc.key_table(name) for name in (f"kafka/{HOST}", f"client/{HOST}", USER)}
            environment |= {**kdc.environment, "SUITE_KEYTAB": keys[f"client/{HOST}"]}
        security = Security(home / "security", home / "data", args.security, url, keys)
        environment |= security.client_keys.environment()
        broker: SecuredBroker | SecuredCluster
        if args.brokers > 1:
            broker = SecuredCluster(home / "data", security, args.brokers, cluster_settings(args))
        else:
            settings = SETTINGS | dict(item.split("=", 1) for item in args.set)
            broker = SecuredBroker(home / "data", security, settings, environment)
        stack.enter_context(broker)
        bootstrap = broker.bootstrap.replace("127.0.0.1", HOST) if keys else broker.bootstrap
        if args.list == "keys" and isinstance(broker, SecuredBroker):
            bootstrap = f"127.0.0.1:{stack.enter_context(LateRelay(broker.port)).port}"
        good = run(bootstrap, args, broker, environment)
    print(f"the log: {broker.log_path}")
    return 0 if good else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev interop", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("suite", nargs="*", metavar="SUITE", help=f"of {', '.join(SUITES)}; default the first two")
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="a broker that already runs")
    parser.add_argument(
        "--list",
        default="quick",
        help="librdkafka tests: quick, core, tools, cluster, noautocreate, keys, denials or 0001,0002 (default quick)",
    )
    parser.add_argument("--jobs", type=int, default=2, help="librdkafka tests at a time")
    parser.add_argument("--retry", action="store_true", help="run failed librdkafka tests again, alone")
    parser.add_argument("--without", nargs="+", metavar="TEST", help="tests of kafka-python to leave out")
    parser.add_argument("--rows", type=int, default=200_000, help="for the suite spark")
    parser.add_argument("--brokers", type=int, default=1, help="a cluster of so many instead of one broker")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="for the broker started here")
    parser.add_argument(
        "--security",
        nargs="?",
        choices=(*MECHANISMS, CERTIFICATES),
        const="SCRAM-SHA-512",
        help="start the broker with TLS, SASL and ACLs; clients log in by this mechanism (default SCRAM-SHA-512), "
        f"or with {CERTIFICATES} by a certificate",
    )
    parser.add_argument("--tls", action="store_true", help="the suite aiokafka over SASL_SSL, not SASL_PLAINTEXT")
    parser.add_argument("--aiokafka", metavar="DIR", help="a checkout of aiokafka's repository, for the suite aiokafka")
    args = parser.parse_args()
    if unknown := set(args.suite) - set(SUITES):
        parser.error(f"no suite {', '.join(sorted(unknown))}")
    if args.security and args.bootstrap:
        parser.error("--security is for the broker that is started here: leave out --bootstrap")
    if args.security in ("GSSAPI", CERTIFICATES) and args.brokers > 1:
        parser.error(f"--security {args.security} is for one broker")
    if args.security == "GSSAPI" and (program := missing_program()):
        parser.error(f"--security GSSAPI needs {program} (Debian: krb5-kdc, krb5-admin-server, krb5-user)")
    if args.security and "spark" in args.suite:
        parser.error("the suite spark runs without --security")
    alone = sorted({*ONLY_SECURED} & set(args.suite))
    if alone and (not args.security or args.brokers > 1):
        parser.error(f"the suite {alone[0]} needs --security and one broker")
    if "aiokafka" in args.suite and not args.aiokafka:
        parser.error("the suite aiokafka needs --aiokafka DIR: its package on PyPI has no tests")
    return args


def main() -> int:
    args = arguments()
    if args.bootstrap:
        return 0 if run(args.bootstrap, args) else 1
    home = Path(tempfile.mkdtemp(prefix="odradek-interop-"))
    if args.security:
        return secured(home, args)
    if args.brokers > 1:
        return on_cluster(home, args)
    (port,) = free_ports(1)
    # A test of kafka-python wants to see the setting.
    settings: dict[str, object] = {**SETTINGS, "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    settings |= DENIALS if args.list == "denials" else {}
    settings |= dict(item.split("=", 1) for item in args.set)
    with BrokerProcess(home / "data", settings, port) as broker:
        good = run(broker.bootstrap, args)
    print(f"broker's log: {broker.log_path}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
