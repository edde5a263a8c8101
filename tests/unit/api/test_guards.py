"""Every API has a guard, which asks for the rights that the API declares and refuses what it declares."""

from __future__ import annotations

import asyncio
import inspect
import typing
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.api.authorization import endpoints
from odradek.api.authorization.endpoints import guarded_endpoint
from odradek.api.authorization.guards import GUARDS, OWN_PARTS
from odradek.api.requests.declarations import DECLARATIONS, Declaration
from odradek.api.requests.failures import failure_response
from odradek.api.requests.registry import endpoint
from odradek.api.requests.rights import Denial
from odradek.api.requests.session import ANONYMOUS, Principal, Session
from odradek.wire.acls import AclOperation, ResourceType
from odradek.wire.apis import APIS, ApiKey, request_class, response_class
from odradek.wire.errors import ErrorCode, KafkaError

ASKED_BY_HANDLERS = {
    ApiKey.FETCH,
    ApiKey.METADATA,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
}
"""Their handlers ask themselves: `tests/integration/test_acl_denials.py` and `test_delegation_tokens.py` look at their
answers."""
RAW = {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.OFFSET_COMMIT}
AFTERWARDS = {Denial.HIDDEN, Denial.REPORTED}
AUTHORIZATION = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
ALICE = Principal("User", "alice")
CASES = [
    pytest.param(declared, version, id=f"{declared.key.name}-{version}")
    for declared in DECLARATIONS.values()
    if declared.rights and declared.key not in ASKED_BY_HANDLERS | RAW
    for version in range(APIS[declared.key].min_version, APIS[declared.key].max_version + 1)
]


class Access:
    """Denies everything but what it is given, and notes what it is asked."""

    request = ""

    def __init__(self, *granted: tuple[AclOperation, ResourceType]) -> None:
        self.granted = set(granted)
        self.asked: set[tuple[AclOperation, ResourceType]] = set()

    def allows(self, operation: AclOperation, kind: ResourceType, _name: str, *, quiet: bool = False) -> bool:
        del quiet
        self.asked.add((operation, kind))
        return (operation, kind) in self.granted

    def allows_cluster(self, operation: AclOperation, *, quiet: bool = False) -> bool:
        return self.allows(operation, ResourceType.CLUSTER, "kafka-cluster", quiet=quiet)

    def allows_on_any(self, operation: AclOperation, kind: ResourceType) -> bool:
        return self.allows(operation, kind, "")

    def operations(self, kind: ResourceType, _name: str) -> int:
        self.asked.add((AclOperation.ANY, kind))
        return 0


def example(kind: type[Any]) -> Any:
    """A message whose lists have an entry each and whose texts are not empty."""
    made = kind()
    for name, hint in typing.get_type_hints(kind.__init__).items():
        if name == "return":
            continue
        options = [each for each in (hint, *typing.get_args(hint)) if each is not type(None)]
        lists = [each for each in options if typing.get_origin(each) is list]
        if lists:
            (inner,) = typing.get_args(lists[0])
            setattr(made, name, [example(inner) if hasattr(inner, "__slots__") else inner({str: "t", int: 1}[inner])])
        elif str in options:
            setattr(made, name, "t")
        elif structs := [each for each in options if hasattr(each, "__slots__") and hasattr(each, "encode")]:
            setattr(made, name, example(structs[0]))
        elif name == "resource_type":
            setattr(made, name, 2)
    return made


def served(key: ApiKey, version: int, access: Access, handle: Any = None) -> Any:
    """What the guarded handler answers to an example, or the failure that the dispatcher would make."""
    request = example(request_class(key))
    image = SimpleNamespace(topic_names={bytes(16): "t"}, topics={"t": None})
    services = SimpleNamespace(image=lambda: image)
    context: Any = SimpleNamespace(access=access, version=version, services=services, denied=None)
    reached: list[Any] = []
    access.request = key.name
    guard: Any = GUARDS[key]
    try:
        answer = guard(request, context, access, handle or (lambda each, _: reached.append(each)))
        if inspect.isawaitable(answer):
            answer = asyncio.run(_awaited(answer))
    except KafkaError as error:
        answer = failure_response(key, request, version, error.code, error.message)
    assert not reached, "a request without rights reached the handler"
    return answer


async def _awaited(answer: Any) -> Any:
    return await answer


def context_of(access: Access) -> Any:
    """What a guarded handler reads before its guard."""
    authorization = SimpleNamespace(access=lambda _session: access)
    session = Session("PLAINTEXT", "127.0.0.1")
    return SimpleNamespace(
        services=SimpleNamespace(authorization=authorization),
        connection=SimpleNamespace(session=session),
        access=access,
        client_id=None,
    )


def codes(answer: Any) -> set[int]:
    """Every error code in an answer."""
    found: set[int] = set()
    for name in getattr(answer, "__slots__", ()):
        value = getattr(answer, name)
        if name.endswith("error_code"):
            found.add(value)
        for each in value if isinstance(value, list) else ():
            found |= codes(each)
    return found - {0}


def test_every_api_has_a_guard() -> None:
    assert set(GUARDS) == {declared.key for declared in DECLARATIONS.values()}


def test_every_own_part_of_a_forwarded_request_is_guarded() -> None:
    own_parts = {key for key in DECLARATIONS if (found := endpoint(key)) is not None and found.own_part is not None}
    assert own_parts == set(OWN_PARTS)


@pytest.mark.parametrize("key", OWN_PARTS)
@pytest.mark.parametrize("names", [["allowed", "denied"], ["denied"], ["allowed"]])
def test_controller_gets_the_allowed_entries_of_a_request_and_no_others(key: ApiKey, names: list[str]) -> None:
    """The broker that the client asks answers the others itself, and forwards nothing where none is allowed."""
    request: Any = request_class(key)()
    whole: Any = example(request_class(key))
    for name in names:
        entry = example(type(whole.resources[0]))
        entry.resource_type, entry.resource_name = {"allowed": 2, "denied": 4}[name], name
        request.resources.append(entry)
    access = Access((AclOperation.ALTER_CONFIGS, ResourceType.TOPIC))
    services = SimpleNamespace(certificates=SimpleNamespace(check_update=lambda _changes: None))
    context: Any = SimpleNamespace(access=access, client_id="c", version=1, services=services)
    found = guarded_endpoint(key)
    assert found is not None
    assert found.own_part is not None
    rest, complete = found.own_part(request, context)
    answer = None
    if "allowed" in names:
        assert rest is not None
        assert [each.resource_name for each in rest.resources] == ["allowed"]
        answer = _without_errors(example(response_class(key)))
        answer.responses[0].resource_name = "allowed"
    else:
        assert rest is None
    codes_of = {each.resource_name: each.error_code for each in complete(answer).responses}
    expected = {"allowed": ErrorCode.NONE, "denied": ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
    assert codes_of == {name: expected[name] for name in names}


def test_api_without_a_guard_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(GUARDS, ApiKey.HEARTBEAT)
    monkeypatch.setattr(endpoints, "_guarded", {})
    found = guarded_endpoint(ApiKey.HEARTBEAT)
    assert found is not None
    with pytest.raises(KafkaError, match="CLUSTER_AUTHORIZATION_FAILED"):
        found.handle(None, context_of(Access()))


@pytest.mark.parametrize(
    ("principal", "broker_id", "is_kept"), [(ANONYMOUS, None, True), (ANONYMOUS, 2, False), (ALICE, None, False)]
)
@pytest.mark.parametrize("key", [ApiKey.HEARTBEAT, ApiKey.METADATA])
def test_access_of_a_session_ends_with_its_principal(
    monkeypatch: pytest.MonkeyPatch, key: ApiKey, principal: Principal, broker_id: int | None, is_kept: bool
) -> None:
    """A client that authenticates again, or proves to be a broker, has other rights from the next request on."""
    monkeypatch.setattr(endpoints, "_guarded", {})
    plain = endpoint(key)
    assert plain is not None
    monkeypatch.setattr(endpoints, "endpoint", lambda _key: plain._replace(handle=lambda *_: None))
    found = guarded_endpoint(key)
    assert found is not None
    before, after = Access((AclOperation.READ, ResourceType.GROUP)), Access((AclOperation.READ, ResourceType.GROUP))
    for access in (before, after):
        access.principal, access.is_broker = ANONYMOUS, False  # type: ignore[attr-defined]
    context = context_of(after)
    session = context.connection.session
    session.access, session.principal, session.broker_id = before, principal, broker_id
    found.handle(example(request_class(key)), context)
    asked = [access.request for access in (before, after)]
    assert asked == ([key.name, ""] if is_kept else ["", key.name])


@pytest.mark.parametrize(("declared", "version"), CASES)
def test_client_without_rights_is_rejected_as_declared(declared: Declaration, version: int) -> None:
    refusing = [right for right in declared.rights if right.denial not in AFTERWARDS]
    if not any(right.denial in (Denial.REQUEST, Denial.ENTRY) for right in refusing):
        return
    access = Access()
    found = codes(served(declared.key, version, access))
    no_room = declared.key == ApiKey.DESCRIBE_LOG_DIRS and version < 3
    assert bool(found) is not no_room
    assert found <= {right.error for right in refusing} | {ErrorCode.OPERATION_NOT_ATTEMPTED}
    assert access.asked <= {(right.operation, right.resource) for right in declared.rights}


@pytest.mark.parametrize("declared", DECLARATIONS.values(), ids=lambda declared: declared.key.name)
def test_guard_asks_for_every_declared_right(declared: Declaration) -> None:
    """Rights are granted one by one, so that a guard comes to ask for the next one."""
    if declared.key in ASKED_BY_HANDLERS | RAW or not declared.rights:
        return
    asked: set[tuple[AclOperation, ResourceType]] = set()
    granted = [(right.operation, right.resource) for right in declared.rights]
    spec = APIS[declared.key]
    for count in range(len(granted) + 1):
        for version in (spec.min_version, min(3, spec.max_version), spec.max_version):
            for given in (granted[:count], granted[len(granted) - count :]):
                for key_type in (0, 1, 2):
                    access = Access(*given)
                    _run(declared.key, version, access, key_type)
                    asked |= access.asked
    conditional = {(AclOperation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID)}
    if declared.key == ApiKey.CONSUMER_GROUP_HEARTBEAT:
        conditional.add((AclOperation.DESCRIBE, ResourceType.TOPIC))
    assert asked | conditional >= set(granted)


def _run(key: ApiKey, version: int, access: Access, key_type: int) -> None:
    request = example(request_class(key))
    _vary(request, key_type)
    image = SimpleNamespace(topic_names={bytes(16): "t"}, topics={"t": None})
    context: Any = SimpleNamespace(
        access=access, version=version, services=SimpleNamespace(image=lambda: image), denied=None
    )
    access.request = key.name
    guard: Any = GUARDS[key]

    def answered(_request: Any, _context: Any) -> Any:
        return _without_errors(example(response_class(key)))

    try:
        answer = guard(request, context, access, answered)
        if inspect.isawaitable(answer):
            asyncio.run(_awaited(answer))
    except KafkaError as error:
        if error.code not in AUTHORIZATION:
            raise


def _vary(request: Any, number: int) -> None:
    """Other values where the right depends on one."""
    if hasattr(request, "key_type"):
        request.key_type = number
    if hasattr(request, "transactional_id") and number == 1 and request.API_KEY == ApiKey.INIT_PRODUCER_ID:
        request.transactional_id = None
    for name in request.__slots__:
        if name.startswith("include_"):
            setattr(request, name, True)
    for entry in getattr(request, "resources", ()):
        entry.resource_type = (2, 4, 32)[number]
    if hasattr(request, "groups") and request.API_KEY == ApiKey.OFFSET_FETCH and number:
        request.groups[0].topics = request.topics = None


def _without_errors(answer: Any) -> Any:
    for name in answer.__slots__:
        value = getattr(answer, name)
        if name.endswith("error_code"):
            setattr(answer, name, 0)
        for each in value if isinstance(value, list) else [value]:
            if hasattr(each, "__slots__"):
                _without_errors(each)
    return answer
