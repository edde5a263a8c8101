"""Decisions of the authorizer beside those of Apache Kafka's StandardAuthorizer, on random ACLs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from random import Random

import pytest

from bench.peers.kafka import QUICK
from odradek.authorization.acl_index import grouped
from odradek.authorization.authorizer import Authorizer, Settings
from odradek.wire.acls import AclBinding, AclOperation, AclPermissionType, PatternType, ResourceType

PROGRAM = Path(__file__).with_name("AuthorizerDecisions.java")
KAFKA = Path(__file__).parents[2] / "bench" / "peers" / "kafka.py"
SETS = int(os.environ.get("ODRADEK_ACL_SETS", "300"))
QUESTIONS = 40
NAMES = ("a", "ab", "abc", "b", "ba", "*", "ab*", "orders", "ord", "o", "zz", "hardcode", "h")
PRINCIPALS = ("User:alice", "User:bob", "Other:alice", "User:root")
ACL_PRINCIPALS = ("User:alice", "User:bob", "User:*", "Other:alice")
HOSTS = ("10.0.0.1", "10.0.0.2", "*")
OPERATIONS = [each for each in AclOperation if each > AclOperation.ANY]


def random_acl(random: Random) -> AclBinding:
    return AclBinding(
        random.choice((ResourceType.TOPIC, ResourceType.TOPIC, ResourceType.GROUP)),
        random.choice(NAMES),
        random.choice(ACL_PRINCIPALS),
        random.choice(OPERATIONS),
        random.choice((AclPermissionType.ALLOW, AclPermissionType.ALLOW, AclPermissionType.DENY)),
        random.choice((*HOSTS, "*")),
        random.choice((PatternType.LITERAL, PatternType.PREFIXED)),
    )


def test_decisions_equal_those_of_apache_kafka(kafka_class_path: str) -> None:
    random = Random(20_260_000)
    lines: list[str] = []
    ours: list[tuple[bool, str]] = []
    for _ in range(SETS):
        free = random.random() < 0.3
        authorizer = Authorizer(Settings(frozenset(("User:root",)), free))
        bindings = [random_acl(random) for _ in range(random.randrange(14))]
        authorizer.update(grouped(bindings))
        lines.append(f"NEW\t{str(free).lower()}")
        for each in set(bindings):
            kind, name, principal, operation, permission, host, pattern = each
            fields = (int(kind), name, int(pattern), principal, host, int(operation), int(permission))
            lines.append("\t".join(("ACL", *map(str, fields))))
        for _ in range(QUESTIONS):
            subject = authorizer.subject(random.choice(PRINCIPALS), random.choice(HOSTS[:2]))
            operation = random.choice(OPERATIONS[1:])
            kind = random.choice((ResourceType.TOPIC, ResourceType.GROUP))
            question = f"{subject.principal}\t{subject.address}\t{int(operation)}\t{int(kind)}"
            if random.random() < 0.3:
                lines.append(f"ANY\t{question}")
                decision = authorizer.decide_on_any(subject, operation, kind)
            else:
                name = random.choice(NAMES)
                lines.append(f"ASK\t{question}\t{name}")
                decision = authorizer.decide(subject, operation, kind, name)
            ours.append((decision.is_allowed, f"{lines[-1]!r} on {bindings}"))
    theirs = subprocess.run(
        ["java", *QUICK, "-cp", kafka_class_path, str(PROGRAM)],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    answers = [line == "true" for line in theirs.stdout.splitlines() if line in ("true", "false")]
    assert len(answers) == len(ours), theirs.stderr[-2000:]
    differing = [text for (mine, text), answer in zip(ours, answers, strict=True) if mine != answer]
    assert not differing, f"{len(differing)} of {len(ours)}: {differing[0]}"


@pytest.fixture(scope="module")
def kafka_class_path(java_tools: object) -> str:
    del java_tools  # which skips where Java or Apache Kafka is missing
    found = subprocess.run(
        ["python3", str(KAFKA), "classpath"], capture_output=True, text=True, timeout=300, check=True
    )
    return found.stdout.strip()
