"""`ssl.principal.mapping.rules`: from the subject of a client's certificate to its principal (KIP-371).

    RULE:^CN=([^,]*),OU=ops.*$/$1/L, DEFAULT

The first rule whose pattern matches the subject as a whole decides; DEFAULT takes the subject as it is. Source:
Kafka's `SslPrincipalMapper`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from odradek.api.requests.session import ANONYMOUS, Principal
from odradek.broker.network.distinguished_names import subject_of, subject_values
from odradek.security.proven_roles import roles_named

_DEFAULT: Final = "DEFAULT"
_RULE: Final = re.compile(
    r"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))"
    r"\s*(?:,|\n|$)"
)
_REFERENCE: Final = re.compile(r"\\(.)|\$(\d)|\$\{(\w+)\}")


class NoMatchingRule(ValueError):
    """No rule matches the subject: as in Kafka, the client is not admitted."""


class PrincipalRule(NamedTuple):
    """One rule; DEFAULT has no pattern."""

    pattern: re.Pattern[str] | None
    replacement: str
    case: str

    def applied(self, subject: str) -> str | None:
        """The principal's name; None where the rule does not match."""
        if self.pattern is None:
            return subject
        found = self.pattern.fullmatch(subject)
        if found is None:
            return None
        name = _REFERENCE.sub(lambda each: _referred(each, found), self.replacement)
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name


def _referred(reference: re.Match[str], found: re.Match[str]) -> str:
    literal, number, name = reference.groups()
    if literal is not None:
        return str(literal)
    return found[int(number) if number is not None else name] or ""


def parse_rules(text: str) -> list[PrincipalRule]:
    """The rules in their order. Raises ValueError, which names the rule that cannot be read."""
    found: list[PrincipalRule] = []
    position = 0
    while position < len(text):
        match = _RULE.match(text, position)
        if match is None:
            raise ValueError(f"{text[position:].strip()!r} is neither DEFAULT nor RULE:pattern/replacement/[LU]")
        if match["default"]:
            found.append(PrincipalRule(None, "", ""))
        else:
            found.append(_rule(match))
        position = match.end()
    return found or [PrincipalRule(None, "", "")]


def _rule(match: re.Match[str]) -> PrincipalRule:
    # Java names groups (?<name>…), Python (?P<name>…).
    pattern = re.sub(r"\(\?<(?=[A-Za-z])", "(?P<", match["pattern"])
    try:
        rule = PrincipalRule(re.compile(pattern), match["replacement"], match["case"])
        for literal, number, name in _REFERENCE.findall(rule.replacement):
            if not literal:
                _check_group(rule, number, name)
    except re.error as error:
        raise ValueError(f"the pattern {match['pattern']!r} cannot be read: {error}") from error
    return rule


def _check_group(rule: PrincipalRule, number: str, name: str) -> None:
    assert rule.pattern is not None, "DEFAULT has no replacement"
    known = int(number) <= rule.pattern.groups if number else name in rule.pattern.groupindex
    if not known:
        raise ValueError(f"the pattern {rule.pattern.pattern!r} has no group {number or name}")


def certificate_principal(
    certificate: bytes | None, rules: Sequence[PrincipalRule], role_attribute: str = ""
) -> Principal:
    """The principal of a client by its certificate in DER; ANONYMOUS without one. Raises ValueError.

    The values of `role_attribute` in the subject (`OU`) are roles of the client; an empty one gives none.
    """
    if certificate is None:
        return ANONYMOUS
    subject = subject_of(certificate)
    for rule in rules:
        name = rule.applied(subject)
        if name is not None:
            values = subject_values(certificate, role_attribute) if role_attribute else ()
            return Principal("User", name, roles=roles_named(values))
    raise NoMatchingRule(f"no rule of ssl.principal.mapping.rules matches {subject!r}")
