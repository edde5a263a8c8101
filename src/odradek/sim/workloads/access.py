"""Administrators that change ACLs and passwords while users ask every broker what they may do.

Areas of names follow each other: an area's ACLs are changed for some seconds, then the next area's, so that changes
whose outcome is unknown do not blur what comes after them. The names need no topics: a refused request and one for an
unknown topic have different errors.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from odradek.client.admin import Admin
from odradek.client.admin.enums import ScramMechanism
from odradek.client.admin.users import ScramUpsertion, salted_upsertion
from odradek.client.errors import AuthenticationFailed
from odradek.client.security.sasl import logins
from odradek.sim.checkers.access_history import Asked, Change, LoginTry, Probe, Question
from odradek.sim.checkers.history import Violation
from odradek.sim.workloads.clients import FAILURES, app_random, note_failure
from odradek.sim.world.hosts import PORT, BrokerHost, ClientHost, World
from odradek.wire.acls import AclBinding, AclOperation, AclPermissionType, PatternType, ResourceType
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsRequestDeletion,
    AlterUserScramCredentialsResponse,
)
from odradek.wire.messages.create_acls import CreateAclsRequest, CreateAclsRequestCreation, CreateAclsResponse
from odradek.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsRequestTopic,
    CreatePartitionsResponse,
)
from odradek.wire.messages.delete_acls import DeleteAclsRequest, DeleteAclsRequestFilter, DeleteAclsResponse
from odradek.wire.messages.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
    DeleteRecordsResponse,
)
from odradek.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponse,
)
from odradek.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from odradek.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersRequestTopic,
    DescribeProducersResponse,
)
from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

_TOPIC, _GROUP, _USER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.USER
_O: Final = AclOperation

PUBLIC_PORT: Final = 9093
_ROOT: Final = ("root", "root-secret")
_LISTENERS: Final = {"CLIENTS": PORT, "PUBLIC": PUBLIC_PORT}
USERS: Final = {"alice": "10.0.0.7", "bert": "10.0.0.129", "cleo": "10.0.1.7"}
"""Users of PLAIN, and the address of the machine that each works at."""
PASSWORDS: Final = tuple(f"{name}-secret".encode() for name in ("root", *USERS))
"""What no log and no record may contain."""
SESSION_SECONDS: Final = 4.0
"""For how long a login counts (`connections.max.reauth.ms`)."""
_AREA_SECONDS: Final = 7.0
_TIMEOUT_MS: Final = 1_500.0
_DENIALS: Final = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED)
_UNDECIDED: Final = (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
"""Errors that a request may get before anything is decided about it."""
_ALWAYS: Final = "always-"
"""The prefix of names that alice may read from the beginning to the end."""

CLIENT_OPTIONS: Final = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_plain_username": _ROOT[0],
    "sasl_plain_password": _ROOT[1],
}
"""By which all clients of the world log in that do not say otherwise: as a super user."""


def broker_settings(node_id: int) -> Mapping[str, str]:
    """Listeners, logins and authorizer of a broker."""
    users = {user: f"{user}-secret" for user in USERS}
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    return {
        "listeners": ",".join(f"{name}://b{node_id}:{port}" for name, port in _LISTENERS.items()),
        "listener.security.protocol.map": ",".join(f"{name}:SASL_PLAINTEXT" for name in _LISTENERS),
        "inter.broker.listener.name": "CLIENTS",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.clients.plain.sasl.jaas.config": _jaas(plain, {**users, _ROOT[0]: _ROOT[1]}),
        "listener.name.public.plain.sasl.jaas.config": _jaas(plain, users),
        "connections.max.reauth.ms": str(int(SESSION_SECONDS * 1000)),
        "connection.failed.authentication.delay.ms": "20",
        "odradek.login.max.failures": "0",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{_ROOT[0]}",
    }


def _jaas(module: str, users: Mapping[str, str]) -> str:
    return f"{module} {' '.join(f'user_{name}={chr(34)}{password}{chr(34)}' for name, password in users.items())};"


def informed_since(world: World, brokers: list[BrokerHost]) -> float:
    """Since when all of these brokers reach the metadata store and are awake; now if one does not."""
    since = 0.0
    for host in brokers:
        if host.store is None or host.process is None or not host.is_up or not host.store.is_reached:
            return world.now()
        since = max(since, host.store.served_since, host.process.paused_until)
    return since


def _host(world: World, node_id: int) -> BrokerHost:
    return world.brokers[node_id - 1]


# --- areas and their ACLs ---


class _Area(NamedTuple):
    """Names whose ACLs are changed at the same time."""

    number: int

    @property
    def names(self) -> tuple[str, ...]:
        """Resources that are asked for."""
        return (f"area{self.number}-a", f"area{self.number}-b", f"{_ALWAYS}{self.number}")

    @property
    def role(self) -> str:
        """A role whose members and ACLs come and go."""
        return f"Role:staff{self.number}"


def _area(world: World) -> _Area:
    return _Area(int(world.now() / _AREA_SECONDS))


def _any_binding(area: _Area, rng: random.Random) -> AclBinding:
    if rng.random() < 0.15:
        return AclBinding(_USER, area.role, f"User:{rng.choice(sorted(USERS))}", _O.ALL)
    kind = rng.choice((_TOPIC, _TOPIC, _GROUP))
    is_prefix = rng.random() < 0.3
    operations = _OPERATIONS[kind]
    permission = AclPermissionType.DENY if rng.random() < 0.3 else AclPermissionType.ALLOW
    principal = rng.choice((*(f"User:{user}" for user in sorted(USERS)), "User:*", area.role))
    return AclBinding(
        kind,
        f"area{area.number}-" if is_prefix else rng.choice(area.names[:2]),
        principal,
        rng.choice(operations),
        permission,
        rng.choice(("*", "*", "*", "10.0.0.0/25", "10.0.0.128/25", "10.0.0.0/24", "10.0.1.7")),
        PatternType.PREFIXED if is_prefix else PatternType.LITERAL,
    )


_OPERATIONS: Final = {
    _TOPIC: (_O.READ, _O.READ, _O.DESCRIBE, _O.DELETE, _O.ALTER, _O.ALTER_CONFIGS, _O.DESCRIBE_CONFIGS, _O.ALL, _O.ALL),
    _GROUP: (_O.READ, _O.DESCRIBE, _O.ALL),
}

# --- the administrator of ACLs ---


async def change_acls(host: ClientHost) -> None:
    """Add and remove ACLs through any broker, each request once."""
    world, rng = host.world, app_random(host)
    while not world.is_stopping():
        try:
            async with Admin(**host.options()) as admin:
                await admin.list_topics()
                await _allow_always(host, admin)
                while not world.is_stopping():
                    await asyncio.sleep(rng.expovariate(2.5))
                    await _change_acl(host, admin, rng)
        except FAILURES as error:
            note_failure(host, "change ACLs", error)
            await asyncio.sleep(0.1)


async def _allow_always(host: ClientHost, admin: Admin) -> None:
    binding = AclBinding(_TOPIC, _ALWAYS, "User:alice", _O.READ, pattern_type=PatternType.PREFIXED)
    if not host.world.history.access.acls[binding]:
        await _set_acl(host, admin, 1, binding, is_present=True)


async def _change_acl(host: ClientHost, admin: Admin, rng: random.Random) -> None:
    world = host.world
    area = _area(world)
    acls = world.history.access.acls
    mine = [
        each for each in acls if area.role == each.resource_name or each.resource_name.startswith(f"area{area[0]}-")
    ]
    known = [each for each in mine if all(change.is_certain for change in acls[each])]
    binding = rng.choice(known) if known and rng.random() < 0.5 else _any_binding(area, rng)
    changes = acls[binding]
    if not all(change.is_certain for change in changes):
        return
    is_present = not (changes and changes[-1].value)
    await _set_acl(host, admin, rng.choice(world.brokers).node_id, binding, is_present=is_present)


async def _set_acl(host: ClientHost, admin: Admin, node_id: int, binding: AclBinding, *, is_present: bool) -> None:
    world = host.world
    changes = world.history.access.acls[binding]
    value = "here" if is_present else None
    asked = world.now()
    changes.append(Change(asked, asked, value, is_certain=False))
    code = await (_create if is_present else _delete)(admin, node_id, binding)
    world.mark(f"ACL {'created' if is_present else 'deleted'}: {ErrorCode(code).name}")
    if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        raise Violation("super users may do everything", f"root may not change {binding} at broker {node_id}")
    if not code:
        changes[-1] = Change(asked, world.now(), value, is_certain=True)
        world.note(f"{host.name}: {'+' if is_present else '-'} {binding.permission.name} {binding}")


async def _create(admin: Admin, node_id: int, each: AclBinding) -> int:
    creation = CreateAclsRequestCreation(
        each.resource_type, each.resource_name, each.pattern_type, each.principal, each.host, each.operation,
        each.permission,
    )  # fmt: skip
    answer = await admin.cluster.request(
        node_id, CreateAclsRequest([creation]), CreateAclsResponse, timeout_ms=_TIMEOUT_MS
    )
    return answer.results[0].error_code


async def _delete(admin: Admin, node_id: int, each: AclBinding) -> int:
    exact = DeleteAclsRequestFilter(
        each.resource_type, each.resource_name, each.pattern_type, each.principal, each.host, each.operation,
        each.permission,
    )  # fmt: skip
    answer = await admin.cluster.request(
        node_id, DeleteAclsRequest([exact]), DeleteAclsResponse, timeout_ms=_TIMEOUT_MS
    )
    found = answer.filter_results[0]
    return found.error_code or next((acl.error_code for acl in found.matching_acls if acl.error_code), 0)


# --- users that ask what they may ---


class _Way(NamedTuple):
    """A request by which an operation is asked for, and where its answer is."""

    request: Callable[[str], Any]
    response: type[Any]
    code: Callable[[Any], int]
    is_forwarded: bool = False


_WAYS: Final[dict[tuple[ResourceType, AclOperation], _Way]] = {
    (_TOPIC, _O.DESCRIBE): _Way(
        lambda name: MetadataRequest([MetadataRequestTopic(name=name)], allow_auto_topic_creation=False),
        MetadataResponse,
        lambda answer: answer.topics[0].error_code,
    ),
    (_TOPIC, _O.READ): _Way(
        lambda name: DescribeProducersRequest([DescribeProducersRequestTopic(name, [0])]),
        DescribeProducersResponse,
        lambda answer: answer.topics[0].partitions[0].error_code,
    ),
    (_TOPIC, _O.DELETE): _Way(
        lambda name: DeleteRecordsRequest(
            [DeleteRecordsRequestTopic(name, [DeleteRecordsRequestPartition(0, 0)])], timeout_ms=1_000
        ),
        DeleteRecordsResponse,
        lambda answer: answer.topics[0].partitions[0].error_code,
    ),
    (_TOPIC, _O.DESCRIBE_CONFIGS): _Way(
        lambda name: DescribeConfigsRequest([DescribeConfigsRequestResource(2, name, None)]),
        DescribeConfigsResponse,
        lambda answer: answer.results[0].error_code,
    ),
    (_TOPIC, _O.ALTER): _Way(
        lambda name: CreatePartitionsRequest([CreatePartitionsRequestTopic(name, 2, None)], timeout_ms=1_000),
        CreatePartitionsResponse,
        lambda answer: answer.results[0].error_code,
        is_forwarded=True,
    ),
    (_GROUP, _O.DESCRIBE): _Way(
        lambda name: DescribeGroupsRequest([name]), DescribeGroupsResponse, lambda answer: answer.groups[0].error_code
    ),
    (_GROUP, _O.READ): _Way(
        lambda name: HeartbeatRequest(name, 1, "member"), HeartbeatResponse, lambda answer: answer.error_code
    ),
}


async def ask(host: ClientHost, user: str) -> None:
    """Ask all brokers for operations on the names of this area and the one before, on connections that stay open."""
    world, rng = host.world, app_random(host)
    while not world.is_stopping():
        try:
            async with Admin(**_options(host, user, f"{user}-secret")) as admin:
                await admin.list_topics()
                while not world.is_stopping():
                    kind, operation, name = _any_request(world, rng)
                    question = Question(user, USERS[user], operation, kind, name)
                    await asyncio.gather(*(_ask(host, admin, each.node_id, question) for each in world.brokers))
                    await asyncio.sleep(rng.expovariate(5.0))
        except FAILURES as error:
            note_failure(host, "ask", error)
            await asyncio.sleep(0.1)


def _any_request(world: World, rng: random.Random) -> tuple[ResourceType, AclOperation, str]:
    """What to ask for: of the present area or the one before, rather something that an ACL is for."""
    now = _area(world)
    area = rng.choice((now, now, _Area(max(0, now.number - 1))))
    kind, operation = rng.choice(sorted(_WAYS))
    name = rng.choice(area.names)
    acls = [each for each in world.history.access.acls if each.resource_name.startswith(f"area{area.number}-")]
    if acls and rng.random() < 0.7:
        chosen = rng.choice(acls)
        kind = chosen.resource_type
        if chosen.pattern_type == PatternType.LITERAL:
            name = chosen.resource_name
        # That operation, or one that it may imply.
        asked = [each for of, each in sorted(_WAYS) if of == kind]
        operation = chosen.operation if chosen.operation in asked and rng.random() < 0.6 else rng.choice(asked)
    return kind, operation, name


def _options(host: ClientHost, user: str, password: str, **more: Any) -> dict[str, Any]:
    return host.options(sasl_plain_username=user, sasl_plain_password=password, **more)


async def _ask(host: ClientHost, admin: Admin, node_id: int, question: Question) -> bool | None:
    """One broker's decision; one that does not answer in time does not affect the others."""
    world = host.world
    way = _WAYS[question.kind, question.operation]
    asked = world.now()
    world.history.access.asked.append(Asked(question, f"b{node_id}", asked))
    try:
        answer = await admin.cluster.request(
            node_id, way.request(question.name), way.response, purpose="ask", timeout_ms=_TIMEOUT_MS
        )
    except FAILURES as error:
        note_failure(host, f"ask broker {node_id}", error)
        return None
    code = ErrorCode(way.code(answer))
    if code in _UNDECIDED:
        return None
    if code is ErrorCode.UNKNOWN_SERVER_ERROR:
        raise Violation("no unknown server errors", f"{question} at broker {node_id}")
    deciding = world.brokers if way.is_forwarded else [_host(world, node_id)]
    since = informed_since(world, deciding)
    is_allowed = code not in _DENIALS
    world.mark("request allowed" if is_allowed else "request denied")
    probe = Probe(question, f"b{node_id}", asked, world.now(), since, is_allowed)
    world.history.access.probes.append(probe)
    return is_allowed


# --- users of SCRAM ---

SCRAM_USERS: Final = ("dora", "emil")
_PASSWORDS: Final = ("first-password", "second-password")
_SCRAM: Final = "SCRAM-SHA-256"
_ITERATIONS: Final = 4096


async def change_users(host: ClientHost) -> None:
    """Set passwords and delete users through any broker, each request once; after an unknown outcome another user."""
    world, rng = host.world, app_random(host)
    while not world.is_stopping():
        try:
            async with Admin(**host.options()) as admin:
                await admin.list_topics()
                while not world.is_stopping():
                    await asyncio.sleep(rng.expovariate(0.8))
                    await _change_user(host, admin, current_user(world, rng.choice(SCRAM_USERS)), rng)
        except FAILURES as error:
            note_failure(host, "change users", error)
            await asyncio.sleep(0.1)


def current_user(world: World, name: str) -> str:
    """The user that stands for this name now: the first one of which every outcome is known."""
    users = world.history.access.users
    number = 1
    while not all(change.is_certain for change in users[f"{name}{number}"]):
        number += 1
    return f"{name}{number}"


async def _change_user(host: ClientHost, admin: Admin, user: str, rng: random.Random) -> None:
    world = host.world
    changes = world.history.access.users[user]
    is_there = bool(changes and changes[-1].value)
    password = None if is_there and rng.random() < 0.5 else rng.choice(_PASSWORDS)
    asked = world.now()
    changes.append(Change(asked, asked, password, is_certain=False))
    request = AlterUserScramCredentialsRequest()
    if password is None:
        request.deletions = [AlterUserScramCredentialsRequestDeletion(user, ScramMechanism.SCRAM_SHA_256)]
    else:
        salt = rng.randbytes(16)
        wanted = ScramUpsertion(user, ScramMechanism.SCRAM_SHA_256, password, _ITERATIONS, salt)
        request.upsertions = [salted_upsertion(wanted)]
    node_id = rng.choice(world.brokers).node_id
    answer = await admin.cluster.request(
        node_id, request, AlterUserScramCredentialsResponse, timeout_ms=2 * _TIMEOUT_MS
    )
    code = ErrorCode(answer.results[0].error_code)
    world.mark(f"user {'deleted' if password is None else 'set'}: {code.name}")
    if not code:
        changes[-1] = Change(asked, world.now(), password, is_certain=True)
        world.note(f"{host.name}: the password of {user} is {password}")


async def log_in(host: ClientHost) -> None:
    """Log in at one broker after the other, stay for a while, and see how the session ends."""
    world, rng = host.world, app_random(host)
    while not world.is_stopping():
        await asyncio.sleep(rng.expovariate(4.0))
        node_id = rng.choice(world.brokers).node_id
        try:
            what = rng.random()
            if what < 0.1:
                await _log_in_elsewhere(host, node_id)
            elif what < 0.2:
                await _change_identity(host, node_id)
            else:
                user = current_user(world, rng.choice(SCRAM_USERS))
                await _log_in_and_stay(host, node_id, user, rng)
        except FAILURES as error:
            note_failure(host, f"log in at broker {node_id}", error)


def _at(host: ClientHost, node_id: int, user: str, password: str, port: int = PORT, **more: Any) -> dict[str, Any]:
    return _options(host, user, password, bootstrap_servers=f"b{node_id}:{port}", **more)


async def _log_in_elsewhere(host: ClientHost, node_id: int) -> None:
    """A super user of one listener is unknown to another one."""
    async with Admin(**_at(host, node_id, *_ROOT, PUBLIC_PORT)) as admin:
        try:
            await admin.cluster.connections.any()
        except AuthenticationFailed:
            host.world.mark("rejected at another listener")
            return
    raise Violation("users belong to their listener", f"root logged in at the listener PUBLIC of broker {node_id}")


async def _change_identity(host: ClientHost, node_id: int) -> None:
    """A connection cannot become another user's (KIP-368)."""
    options = _at(host, node_id, "alice", "alice-secret")
    async with Admin(**options) as admin:
        connection = await admin.cluster.connections.any()
        await asyncio.sleep(1.2)
        again = logins({**admin.cluster.options, **_options(host, *_ROOT)}, host.random)
        try:
            await again(connection, _TIMEOUT_MS)
        except AuthenticationFailed:
            host.world.mark("rejected as another user")
            return
    raise Violation("a connection keeps its user", f"alice authenticated again as root at broker {node_id}")


async def _log_in_and_stay(host: ClientHost, node_id: int, user: str, rng: random.Random) -> None:
    world = host.world
    password = rng.choice(_PASSWORDS)
    asked = world.now()
    async with Admin(**_at(host, node_id, user, password, sasl_mechanism=_SCRAM)) as admin:
        is_accepted = True
        try:
            connection = await admin.cluster.connections.any()
        except AuthenticationFailed:
            is_accepted = False
        since = informed_since(world, [_host(world, node_id)])
        world.mark("login accepted" if is_accepted else "login rejected")
        tried = LoginTry(user, password, f"b{node_id}", asked, world.now(), since, is_accepted)
        world.history.access.logins.append(tried)
        until = world.now() + rng.choice((0.0, 0.0, 12.0))
        while is_accepted and world.now() < until and not world.is_stopping():
            await asyncio.sleep(0.3)
            asked = world.now()
            request = MetadataRequest([], allow_auto_topic_creation=False)
            await admin.cluster.ask(connection, request, MetadataResponse, timeout_ms=_TIMEOUT_MS)
            since = informed_since(world, [_host(world, node_id)])
            # For that long a session may outlast its user.
            before = asked - SESSION_SECONDS
            seen = LoginTry(
                user, password, f"b{node_id}", before, world.now(), since, is_accepted=True, is_session=True
            )
            world.history.access.logins.append(seen)


# --- after all faults ---


async def see_agreement(host: ClientHost, user: str) -> None:
    """Ask every broker for everything that users asked for last; the answers are to be alike."""
    world = host.world
    await asyncio.sleep(2.0)
    asked = {probe.question.name for probe in world.history.access.probes[-400:]}
    async with Admin(**_options(host, user, f"{user}-secret")) as admin:
        await admin.list_topics()
        for kind, operation in sorted(_WAYS):
            for name in sorted(asked.union(_area(world).names)):
                question = Question(user, USERS[user], operation, kind, name)
                found = world.history.access.final.setdefault(question, {})
                for each in world.brokers:
                    is_allowed = await _ask(host, admin, each.node_id, question)
                    if is_allowed is not None:
                        found[each.host] = is_allowed
    world.mark("brokers agree")


PROGRAMS: Final = (
    ("acl-admin", change_acls),
    ("user-admin", change_users),
    *((address, lambda host, user=user: ask(host, user)) for user, address in USERS.items()),
    ("login-1", log_in),
    ("login-2", log_in),
)
