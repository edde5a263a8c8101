"""Bugs of authorization and authentication that are planted on purpose: see `planted`, which searches them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from ipaddress import ip_network
from typing import Any, Final

from odradek.api.requests.session import Session
from odradek.authorization.acl_index import EVERY_USER
from odradek.authorization.decisions import Decision, Reason, decide
from odradek.authorization.operations import is_allowed_by
from odradek.broker.authorization.stored_acls import ROOTS
from odradek.metadata.acl_nodes import AclNode
from odradek.sim.planted.cluster_bugs import Row
from odradek.wire.acls import AclOperation

ACCESS_BUGS: Final[list[Row]] = []

_PROFILE: Final = "acls"
_AUTHORIZER: Final = "odradek.authorization.authorizer"
_DECISIONS: Final = "odradek.authorization.decisions"
_INDEX: Final = "odradek.authorization.acl_index"
_STORED: Final = "odradek.broker.authorization.stored_acls:StoredAcls"
_LOGINS: Final = "odradek.broker.security.logins:Logins"


def _bug(name: str, story: str, *targets: str) -> Callable[[Callable[[Any], Any]], None]:
    def register(make: Callable[[Any], Any]) -> None:
        ACCESS_BUGS.append((name, story, _PROFILE, targets, make))

    return register


# --- decisions ---


@_bug("decisions kept", "a connection remembers its decisions although the ACLs have changed",
      f"{_AUTHORIZER}:Access._forget")  # fmt: skip
def _(right: Any) -> Any:
    def forget(self: Any) -> None:
        decisions = self._decisions
        right(self)
        self._decisions = decisions

    return forget


@_bug("denials after allowances", "an ACL that allows decides before one that denies",
      f"{_AUTHORIZER}:decide")  # fmt: skip
def _(right: Any) -> Any:
    def decided(index: Any, subject: Any, operation: Any, kind: Any, name: str, *, allow_without_acl: bool) -> Any:
        found = right(index, subject, operation, kind, name, allow_without_acl=allow_without_acl)
        for rules in index.matching(kind, name):
            for principal in subject.names:
                for rule in rules.get(principal, ()):
                    is_allowing = rule.binding.permission.name == "ALLOW" and rule.applies_to(subject.address)
                    if is_allowing and is_allowed_by(operation, rule.binding.operation):
                        return Decision(True, Reason.ACL, rule.binding)
        return found

    return decided


@_bug("prefix compared as a name", "an ACL for a prefix applies to the resource of that name only",
      f"{_INDEX}:AclIndex.matching")  # fmt: skip
def _(right: Any) -> Any:
    def matching(self: Any, kind: Any, name: str) -> Any:
        of_type = self._by_type.get(kind)
        prefixes = () if of_type is None else of_type.prefixed.items()
        dropped = [rules for prefix, rules in prefixes if prefix != name]
        return [rules for rules in right(self, kind, name) if all(rules is not each for each in dropped)]

    return matching


@_bug("network one bit short", "a network of addresses counts as one of twice the size",
      f"{_INDEX}:host_matcher")  # fmt: skip
def _(right: Any) -> Any:
    return lambda host: right(str(ip_network(host).supernet()) if "/" in host else host)


@_bug("nothing implied", "an ACL that allows READ or DELETE does not allow DESCRIBE",
      f"{_DECISIONS}:is_allowed_by")  # fmt: skip
def _(right: Any) -> Any:
    return lambda wanted, allowed: allowed in (AclOperation.ALL, wanted)


@_bug("ALL allows nothing", "an ACL that allows ALL allows no single operation", f"{_DECISIONS}:is_allowed_by")
def _(right: Any) -> Any:
    return lambda wanted, allowed: allowed != AclOperation.ALL and right(wanted, allowed)


@_bug("ALL denies nothing", "an ACL that denies ALL denies no single operation", f"{_DECISIONS}:is_denied_by")
def _(right: Any) -> Any:
    return lambda wanted, denied: denied == wanted


@_bug("denials imply", "an ACL that denies READ denies DESCRIBE", f"{_DECISIONS}:is_denied_by")
def _(right: Any) -> Any:
    return lambda wanted, denied: right(wanted, denied) or is_allowed_by(wanted, denied)


@_bug("ACLs of every user missed", "an ACL for User:* has no effect", f"{_AUTHORIZER}:decide")
def _(right: Any) -> Any:
    class Alone:
        def __init__(self, subject: Any) -> None:
            self.address = subject.address
            self.names = tuple(each for each in subject.names if each != EVERY_USER)

    return lambda index, subject, *rest, **more: decide(index, Alone(subject), *rest, **more)  # type: ignore[arg-type]


@_bug("members kept", "a role that was revoked stays", f"{_INDEX}:AclIndex.roles_of")
def _(right: Any) -> Any:
    known: dict[str, frozenset[str]] = {}

    def roles(self: Any, principal: str, address: str) -> frozenset[str]:
        known[principal] = known.get(principal, frozenset()) | right(self, principal, address)
        return known[principal]

    return roles


# --- ACLs on their way from the store ---


@_bug("new session not noticed", "a broker ignores the store's report of all changes after a new session",
      f"{_STORED}._changed")  # fmt: skip
def _(right: Any) -> Any:
    return lambda self, path: None if path in ROOTS else right(self, path)


@_bug("last ACL stays", "an ACL node that is gone keeps its ACLs in effect", f"{_STORED}._take")
def _(right: Any) -> Any:
    def take(self: Any, tops: Any, nodes: Any, strict: bool) -> None:
        right(self, [path for path in tops if not AclNode.is_path(path) or path in nodes], nodes, strict)

    return take


@_bug("change answered early", "a broker acknowledges an ACL before it is written",
      "odradek.broker.authorization.acl_changes:AclChanges._change")  # fmt: skip
def _(right: Any) -> Any:

    async def change(self: Any, patterns: Any, edit: Any) -> None:
        async def later() -> None:
            await asyncio.sleep(2.5)
            await right(self, patterns, edit)

        asyncio.get_running_loop().create_task(later()).add_done_callback(lambda done: done.exception())

    return change


# --- who asks ---


@_bug("forwarded as a broker", "the controller judges a forwarded request as one of the broker that forwards it",
      "odradek.api.api_58_envelope:_session_of")  # fmt: skip
def _(right: Any) -> Any:
    def session(request: Any, context: Any) -> Session:
        found: Session = right(request, context)
        found.broker_id = context.session.broker_id
        return found

    return session


@_bug("identity changed", "a connection that authenticates again may be another user's", f"{_LOGINS}._check_unchanged")
def _(right: Any) -> Any:
    return lambda self, session, proven: None


@_bug("users of another listener", "the users of one listener may log in at all", f"{_LOGINS}._exchange")
def _(right: Any) -> Any:
    return lambda self, session, _, mechanism: right(self, session, next(iter(self._listeners.values())), mechanism)


@_bug("deleted user remembered", "a user that was deleted still logs in", f"{_LOGINS}._find_user")
def _(right: Any) -> Any:
    known: dict[Any, Any] = {}

    async def find(self: Any, mechanism: Any, user: str) -> Any:
        found = await right(self, mechanism, user)
        if found.proven is not None:
            known[id(self), user] = found
        return known.get((id(self), user), found)

    return find


@_bug("old password remembered", "a changed password has no effect", f"{_LOGINS}._find_user")
def _(right: Any) -> Any:
    known: dict[Any, Any] = {}

    async def find(self: Any, mechanism: Any, user: str) -> Any:
        found = await right(self, mechanism, user)
        return found if found.proven is None else known.setdefault((id(self), user), found)

    return find


@_bug("credentials read once", "a broker learns of changed credentials only when it starts",
      "odradek.broker.cluster.stored_configs:StoredConfigs._config_changed")  # fmt: skip
def _(right: Any) -> Any:
    return lambda self, path="": right(self) if not path else None
