"""ACLs in the form that decisions read: by resource, then by principal.

An index never changes. The next one shares the resources that did not change, so that one new ACL among ten thousand
costs a copy of some dictionaries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from odradek.authorization.hosts import HostMatcher, host_matcher
from odradek.wire.acls import (
    WILDCARD,
    AclBinding,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
    pattern_of,
)

ROLE: Final = "Role"
"""The type of principals that stand for all of their members (`Role:analysts`)."""
EVERY_USER: Final = "User:*"


class Rule(NamedTuple):
    """One ACL of a resource and a principal; `matches_host` is None for every host."""

    binding: AclBinding
    matches_host: HostMatcher | None

    def applies_to(self, address: str) -> bool:
        """Whether the ACL is for clients of this address."""
        return self.matches_host is None or self.matches_host(address)


Rules = Mapping[str, tuple[Rule, ...]]
"""The ACLs of one resource pattern by principal."""
Acls = Mapping[ResourcePattern, frozenset[AclBinding]]
"""The ACLs of a cluster by their patterns."""


def grouped(bindings: Iterable[AclBinding]) -> dict[ResourcePattern, frozenset[AclBinding]]:
    """The ACLs by their patterns."""
    found: dict[ResourcePattern, set[AclBinding]] = {}
    for binding in bindings:
        found.setdefault(pattern_of(binding), set()).add(binding)
    return {pattern: frozenset(of_pattern) for pattern, of_pattern in found.items()}


class _TypeIndex(NamedTuple):
    literal: Mapping[str, Rules]
    prefixed: Mapping[str, Rules]
    lengths: tuple[int, ...]
    """Different lengths of the prefixes, ascending: a name is looked up once for each."""


_NO_RULES: Final = _TypeIndex({}, {}, ())


class AclIndex:
    """The ACLs of a cluster at one moment."""

    __slots__ = ("_by_type", "acls")

    def __init__(self, acls: Acls | None = None, previous: AclIndex | None = None) -> None:
        """`previous` is an index of most of these ACLs, whose parts are shared."""
        self.acls: Acls = {} if acls is None else acls
        """By pattern; patterns without ACLs are absent."""
        before: Acls = {} if previous is None else previous.acls
        changed = [pattern for pattern, found in self.acls.items() if before.get(pattern) is not found]
        changed += before.keys() - self.acls.keys()
        by_type = {} if previous is None else dict(previous._by_type)
        for kind in {pattern.type for pattern in changed}:
            of_type = [pattern for pattern in changed if pattern.type == kind]
            by_type[kind] = self._changed(by_type.get(kind, _NO_RULES), of_type)
        self._by_type: dict[ResourceType, _TypeIndex] = by_type

    def _changed(self, old: _TypeIndex, patterns: Iterable[ResourcePattern]) -> _TypeIndex:
        literal, prefixed = dict(old.literal), dict(old.prefixed)
        for pattern in patterns:
            of_kind = literal if pattern.pattern_type == PatternType.LITERAL else prefixed
            bindings = self.acls.get(pattern)
            if bindings:
                of_kind[pattern.name] = _by_principal(bindings)
            else:
                of_kind.pop(pattern.name, None)
        return _TypeIndex(literal, prefixed, tuple(sorted({len(prefix) for prefix in prefixed})))

    def __iter__(self) -> Iterator[AclBinding]:
        for bindings in self.acls.values():
            yield from bindings

    def matching(self, kind: ResourceType, name: str) -> list[Rules]:
        """The ACLs of every pattern that matches the resource; empty if none does."""
        found: list[Rules] = []
        of_type = self._by_type.get(kind)
        if of_type is None:
            return found
        if (rules := of_type.literal.get(name)) is not None:
            found.append(rules)
        for length in of_type.lengths:
            if length > len(name):
                break
            if (rules := of_type.prefixed.get(name[:length])) is not None:
                found.append(rules)
        if name != WILDCARD and (rules := of_type.literal.get(WILDCARD)) is not None:
            found.append(rules)
        return found

    def of_type(self, kind: ResourceType) -> Iterator[tuple[ResourcePattern, Rules]]:
        """Every pattern of a type of resources, and its ACLs."""
        of_type = self._by_type.get(kind, _NO_RULES)
        for name, rules in of_type.literal.items():
            yield ResourcePattern(kind, name, PatternType.LITERAL), rules
        for name, rules in of_type.prefixed.items():
            yield ResourcePattern(kind, name, PatternType.PREFIXED), rules

    def roles_of(self, principal: str, address: str) -> frozenset[str]:
        """The roles (`Role:NAME`) of a principal.

        A membership is an ACL: it allows the member ALL on the USER resource with the name of the role.
        """
        roles = set()
        for name, rules in self._by_type.get(ResourceType.USER, _NO_RULES).literal.items():
            if name.startswith(ROLE + ":"):
                granted = [rule for rule in rules.get(principal, ()) if _is_membership(rule, address)]
                if granted and all(rule.binding.permission == AclPermissionType.ALLOW for rule in granted):
                    roles.add(name)
        return frozenset(roles)


def _by_principal(bindings: Iterable[AclBinding]) -> Rules:
    found: dict[str, list[Rule]] = {}
    for binding in sorted(bindings):
        found.setdefault(binding.principal, []).append(Rule(binding, host_matcher(binding.host)))
    return {principal: tuple(rules) for principal, rules in found.items()}


def _is_membership(rule: Rule, address: str) -> bool:
    return rule.binding.operation == AclOperation.ALL and rule.applies_to(address)
