"""An image as a tree of named nodes, as Apache's `kafka-metadata-shell` shows it. Secrets are left out.

Source: the package `org.apache.kafka.image.node`.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Union

from odradek.metadata.configs.catalog import GROUP, TOPIC, broker_definition
from odradek.metadata.configs.definitions import ConfigDefinition
from odradek.metadata.features import KRAFT_VERSION
from odradek.metadata.image import Broker, ClientEntity, ClusterImage, ControllerRegistration, PartitionState, Topic
from odradek.security.delegation_tokens import DelegationToken
from odradek.security.scram import MECHANISMS, ScramCredential
from odradek.wire.acls import AclBinding

Tree = Mapping[str, Union["Tree", str]]
"""Children by their names; a leaf is its text."""

_REDACTED = "[redacted]"
_METADATA_VERSION = "metadata.version"


def image_tree(image: ClusterImage, end_offset: int) -> Tree:
    """The node `image` of the tree; `end_offset` is that of the records that the image comes from."""
    return {
        "provenance": _json({"endOffset": end_offset}),
        "features": _features(image),
        "cluster": {
            "brokers": {str(number): _broker(image.brokers[number]) for number in sorted(image.brokers)},
            "controllers": {
                str(number): _controller(image.controllers[number]) for number in sorted(image.controllers)
            },
        },
        "topics": _topics(image),
        "configs": _configs(image),
        "clientQuotas": {_entity(entity): quotas for entity, quotas in _quotas(image)},
        "producerIds": {"nextProducerId": str(image.next_producer_id or -1)},
        "acls": {"byId": {_id(acl_id): _acl(acl) for acl_id, acl in image.acls.items()}},
        "scram": _credentials(image),
        "delegationToken": {token_id: _token(token) for token_id, token in image.tokens.items()},
    }


def _features(image: ClusterImage) -> Tree:
    levels = image.features or {}
    # Apache's shell shows features of records only: kraft.version is finalized by a control record.
    shown = levels.keys() - {_METADATA_VERSION, KRAFT_VERSION}
    found = {f"finalized_{name}": str(levels[name]) for name in sorted(shown)}
    return {"metadataVersion": str(levels.get(_METADATA_VERSION, "unknown")), **found}


def _topics(image: ClusterImage) -> Tree:
    nodes = {name: _topic(image.topics[name]) for name in sorted(image.topics)}
    return {"byName": nodes, "byId": {_id(image.topics[name].id): node for name, node in nodes.items()}}


def _topic(topic: Topic) -> Tree:
    states = {str(index): _partition(state) for index, state in enumerate(topic.partitions)}
    return {"name": topic.name, "id": _id(topic.id), **states}


def _partition(state: PartitionState) -> str:
    return _json(
        {
            "replicas": state.replicas,
            "directories": [_id(each) for each in state.directories],
            "isr": state.isr,
            "removingReplicas": state.removing_replicas,
            "addingReplicas": state.adding_replicas,
            "elr": state.elr,
            "lastKnownElr": state.last_known_elr,
            "leader": state.leader,
            "leaderRecoveryState": "RECOVERING" if state.recovery else "RECOVERED",
            "leaderEpoch": state.leader_epoch,
            "partitionEpoch": state.partition_epoch,
        }
    )


def _broker(broker: Broker) -> str:
    return _json(
        {
            "id": broker.id,
            "epoch": broker.epoch,
            **_process(broker),
            "rack": broker.rack,
            "fenced": broker.fenced,
            "inControlledShutdown": broker.in_controlled_shutdown,
            "directories": [_id(each) for each in broker.log_dirs],
            "cordonedDirectories": [_id(each) for each in broker.cordoned_log_dirs],
        }
    )


def _controller(controller: ControllerRegistration) -> str:
    return _json({"id": controller.id, **_process(controller)})


def _process(node: Broker | ControllerRegistration) -> dict[str, Any]:
    return {
        "incarnationId": _id(node.incarnation_id),
        "listeners": [
            {"name": name, "host": each.host, "port": each.port, "securityProtocol": each.security_protocol}
            for name, each in node.endpoints.items()
        ],
        "supportedFeatures": dict(sorted(node.features.items())),
    }


def _configs(image: ClusterImage) -> Tree:
    topics = {name: topic.configs for name, topic in sorted(image.topics.items()) if topic.configs}
    kinds: Iterable[tuple[str, Mapping[str, Mapping[str, str]], Callable[[str], ConfigDefinition | None] | None]] = (
        ("BROKER", image.broker_configs, broker_definition),
        ("TOPIC", topics, TOPIC.get),
        ("GROUP", image.group_configs, GROUP.get),
        ("CLIENT_METRICS", image.client_metrics, None),
    )
    return {
        f"{kind}:{name}" if name else kind: {key: _shown(key, text, definition_of) for key, text in settings.items()}
        for kind, entries, definition_of in kinds
        for name, settings in entries.items()
    }


def _shown(name: str, text: str, definition_of: Callable[[str], ConfigDefinition | None] | None) -> str:
    if definition_of is None:
        return text
    definition = definition_of(name)
    # A setting that this version does not know may be a plug-in's password.
    return _REDACTED if definition is None or definition.is_sensitive else text


def _quotas(image: ClusterImage) -> Iterable[tuple[ClientEntity, Tree]]:
    for entity, settings in image.client_configs.items():
        quotas = {key: text for key, text in settings.items() if key not in MECHANISMS}
        if quotas:
            yield entity, quotas


def _entity(entity: ClientEntity) -> str:
    parts = (("clientId", entity.client_id), ("ip", entity.ip), ("user", entity.user))
    return "_".join(f"{kind}({name})" if name else f"{kind}(default)" for kind, name in parts if name is not None)


def _credentials(image: ClusterImage) -> Tree:
    found: dict[str, dict[str, str]] = {}
    for entity, settings in image.client_configs.items():
        for mechanism in MECHANISMS.keys() & settings.keys():
            credential = ScramCredential.parse(settings[mechanism])
            text = _json({"iterations": credential.iterations, "credential": _REDACTED})
            found.setdefault(mechanism, {})[entity.user or ""] = text
    return found


def _acl(acl: AclBinding) -> str:
    return _json(
        {
            "resourceType": acl.resource_type.name,
            "resourceName": acl.resource_name,
            "patternType": acl.pattern_type.name,
            "principal": acl.principal,
            "host": acl.host,
            "operation": acl.operation.name,
            "permissionType": acl.permission.name,
        }
    )


def _token(token: DelegationToken) -> str:
    return _json(
        {
            "tokenId": token.token_id,
            "owner": token.owner,
            "tokenRequester": token.requester,
            "renewers": token.renewers,
            "issueTimestamp": token.issued_ms,
            "maxTimestamp": token.max_ms,
            "expirationTimestamp": token.expiry_ms,
        }
    )


def _id(value: bytes) -> str:
    return urlsafe_b64encode(value).rstrip(b"=").decode()


def _json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=False)
