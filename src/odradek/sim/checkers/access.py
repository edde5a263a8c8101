"""Who may do what, judged apart from the product: every answer to a question of rights against the changes before it.

A change counts from its acknowledgement on, on every broker that can learn of it, within `BOUND_SECONDS`. What a client
did not learn the outcome of may count or not for the rest of the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import ip_address, ip_network
from typing import Final

from odradek.sim.checkers.access_history import AccessHistory, Change, LoginTry, Probe, Question
from odradek.sim.checkers.history import Violation
from odradek.wire.acls import AclBinding, AclOperation, AclPermissionType, PatternType, ResourceType

BOUND_SECONDS: Final = 1.0
"""Within so long after its acknowledgement a change decides on every broker that reaches the metadata store."""
_IMPLY: Final = {
    AclOperation.DESCRIBE: {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER},
    AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
}


def possible(changes: Iterable[Change], start: float, end: float) -> set[str | None]:
    """All values that may be seen in a window of time."""
    found: set[str | None] = {None}
    late: set[str | None] = set()
    for each in changes:
        if each.asked_at > end:
            break
        if not each.is_certain:
            # Its request may be on its way for the rest of the run.
            late.add(each.value)
            found.add(each.value)
        elif each.done_at <= start:
            found = {each.value, *late}
        else:
            found.add(each.value)
    return found


class Judge:
    """Decides by the ACLs of a history, as far as they are certain."""

    def __init__(self, history: AccessHistory, start: float, end: float) -> None:
        """`start` and `end`: the window of time in which the broker may have learned what it decided by."""
        self._history = history
        self._present: dict[AclBinding, set[str | None]] = {}
        self._start, self._end = start, end

    def must(self, question: Question) -> bool | None:
        """The only right decision; None if both are."""
        allowed = denied = surely_allowed = surely_denied = False
        for binding, is_sure in self._for(question):
            if binding.permission == AclPermissionType.DENY:
                if binding.operation in (AclOperation.ALL, question.operation):
                    denied, surely_denied = True, surely_denied or is_sure
            elif _allows(binding.operation, question.operation):
                allowed, surely_allowed = True, surely_allowed or is_sure
        if surely_denied or not allowed:
            return False
        return True if surely_allowed and not denied else None

    def _for(self, question: Question) -> Iterator[tuple[AclBinding, bool]]:
        """ACLs that may be for the question, and whether they surely are."""
        for binding in self._history.acls:
            if binding.resource_type != question.kind or not _names(binding, question.name):
                continue
            values = self._values(binding)
            if values == {None} or not _is_from(binding.host, question.address):
                continue
            is_member = self._is_meant(binding.principal, question.user)
            if is_member is not False:
                yield binding, None not in values and is_member is True

    def _is_meant(self, principal: str, user: str) -> bool | None:
        if not principal.startswith("Role:"):
            return principal in (f"User:{user}", "User:*")
        membership = AclBinding(ResourceType.USER, principal, f"User:{user}", AclOperation.ALL)
        values = self._values(membership)
        return False if values == {None} else None if None in values else True

    def _values(self, binding: AclBinding) -> set[str | None]:
        found = self._present.get(binding)
        if found is None:
            changes = self._history.acls.get(binding, ())
            found = self._present[binding] = possible(changes, self._start, self._end)
        return found


def _allows(allowed: AclOperation, wanted: AclOperation) -> bool:
    return allowed in (AclOperation.ALL, wanted) or allowed in _IMPLY.get(wanted, ())


def _names(binding: AclBinding, name: str) -> bool:
    if binding.pattern_type == PatternType.PREFIXED:
        return name.startswith(binding.resource_name)
    return binding.resource_name in (name, "*")


def _is_from(host: str, address: str) -> bool:
    if "/" in host:
        return ip_address(address) in ip_network(host)
    return host in ("*", address)


def _window(asked_at: float, informed_since: float) -> float:
    """From when on the broker may have its knowledge; before everything if it could not learn."""
    start = asked_at - BOUND_SECONDS
    return start if informed_since <= start else 0.0


def check_access(history: AccessHistory) -> None:
    """Every decision and every login is right. Raises Violation."""
    for probe in history.probes:
        start = _window(probe.asked_at, probe.informed_since)
        must = Judge(history, start, probe.done_at).must(probe.question)
        if must is not None and must is not probe.is_allowed:
            _raise_wrong(history, probe)
    for each in history.logins:
        _check_login(history, each)


def _raise_wrong(history: AccessHistory, probe: Probe) -> None:
    asked = probe.question
    what = (
        f"{asked.user} from {asked.address}: {asked.operation.name} of {asked.kind.name} {asked.name} "
        f"at {probe.broker}, asked {probe.asked_at:.3f}, informed since {probe.informed_since:.3f}"
    )
    rules = "; ".join(
        f"{binding.permission.name} {binding.operation.name} to {binding.principal} from {binding.host} on "
        f"{binding.pattern_type.name} {binding.resource_name} "
        + " ".join(f"{'+' if c.value else '-'}{c.done_at:.3f}{'' if c.is_certain else '?'}" for c in changes)
        for binding, changes in history.acls.items()
        if (binding.resource_type == asked.kind and _names(binding, asked.name))
        or (binding.resource_type == ResourceType.USER and binding.principal == f"User:{asked.user}")
    )
    if probe.is_allowed:
        raise Violation("nothing is served without right", f"{what}, was served; {rules}")
    raise Violation("nothing is refused that is allowed", f"{what}, was refused; {rules}")


def _check_login(history: AccessHistory, tried: LoginTry) -> None:
    start = _window(tried.asked_at, tried.informed_since)
    values = possible(history.users.get(tried.user, ()), start, tried.done_at)
    changes = [f"{c.value} {c.done_at:.3f}{'' if c.is_certain else '?'}" for c in history.users.get(tried.user, ())]
    what = (
        f"{tried.user} with {tried.password} at {tried.broker}, asked {tried.asked_at:.3f}, informed since "
        f"{tried.informed_since:.3f}; passwords: {', '.join(changes)}"
    )
    if tried.is_session:
        if values == {None}:
            raise Violation("sessions of deleted users end", what)
    elif tried.is_accepted and tried.password not in values:
        raise Violation("no login without a credential", what)
    elif not tried.is_accepted and values == {tried.password}:
        raise Violation("no login fails with the right password", what)


def check_agreement(decisions: dict[Question, dict[str, bool]]) -> None:
    """After all faults every broker decides alike. Raises Violation."""
    for asked, by_broker in decisions.items():
        if len(set(by_broker.values())) > 1:
            raise Violation("all brokers decide alike", f"{asked}: {by_broker}")
