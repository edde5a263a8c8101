"""Decisions in the log, under the name that Kafka's authorizer uses.

As in Kafka, denials have the level INFO, allowances DEBUG; TRACE there, for what merely is filtered, is DEBUG here. A
connection that repeats a request gets one line until the ACLs change: a client that retries must not fill the disk.
"""

from __future__ import annotations

import logging
from typing import Final

from odradek.authorization.authorizer import Mode, Question
from odradek.authorization.decisions import Decision, Reason
from odradek.wire.acls import AclBinding, AclPermissionType, PatternType

logger = logging.getLogger("kafka.authorizer.logger")

_MOST_CHARACTERS: Final = 300


def report_of(mode: Mode) -> DecisionLog:
    """The function that logs the decisions of an authorizer in this mode."""
    return DecisionLog("Denied" if mode is Mode.ENFORCE else "allowed, and would be Denied by odradek.authorizer.mode")


class DecisionLog:
    """Logs each decision that it is called with."""

    __slots__ = ("_denied",)

    def __init__(self, denied: str) -> None:
        self._denied = denied

    def __call__(self, question: Question, decision: Decision, quiet: bool) -> None:
        level = logging.DEBUG if decision.is_allowed or quiet else logging.INFO
        if decision.reason is Reason.BROKER or not logger.isEnabledFor(level):
            return
        logger.log(
            level,
            "Principal = %s is %s operation = %s from host = %s on resource = %s:LITERAL:%s%s based on rule %s",
            escaped(question.subject.principal),
            "Allowed" if decision.is_allowed else self._denied,
            question.operation.name,
            question.subject.address,
            question.kind.name,
            escaped(question.name or "(any)"),
            f" for request = {question.request}" if question.request else "",
            rule_text(decision),
        )


def escaped(text: str) -> str:
    """A client's text without line breaks and other control characters, and of bounded length."""
    short = text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in short)


def rule_text(decision: Decision) -> str:
    """What a decision follows from, in one line."""
    if decision.binding is None:
        return decision.reason.value
    return acl_text(decision.binding)


def acl_text(binding: AclBinding) -> str:
    """An ACL in one line."""
    permission = "Allow" if binding.permission == AclPermissionType.ALLOW else "Deny"
    kind = "PREFIXED" if binding.pattern_type == PatternType.PREFIXED else "LITERAL"
    return escaped(
        f"{permission} {binding.principal} {binding.operation.name} on {binding.resource_type.name}:{kind}:"
        f"{binding.resource_name} from {binding.host}"
    )
