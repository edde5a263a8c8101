"""The admin client: topics, settings, groups, replicas, transactions, quotas, users, tokens, ACLs and more."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from odradek.client.admin.admin import Admin
from odradek.client.admin.configs import AlterConfig, ConfigEntry, ConfigResource, ConfigSynonym
from odradek.client.admin.enums import (
    AlterConfigOp,
    ConfigResourceType,
    ConfigSource,
    ElectionType,
    FeatureUpgradeType,
    GroupProtocolType,
    GroupState,
    GroupType,
    QuotaEntityType,
    QuotaMatch,
    ScramMechanism,
    TransactionState,
)
from odradek.client.admin.groups import GroupDescription, GroupListing, MemberDescription
from odradek.client.admin.replicas import PartitionReassignment
from odradek.client.admin.requests import raise_first
from odradek.client.admin.topics import NewTopic
from odradek.client.admin.topology import ClusterDescription, QuorumDescription, QuorumReplica
from odradek.client.model import IsolationLevel, OffsetSpec
from odradek.wire.acls import AclBinding, AclFilter, AclOperation, AclPermissionType, PatternType, ResourceType

if TYPE_CHECKING:
    from odradek.client.admin.features import FeatureMetadata as FeatureMetadata
    from odradek.client.admin.features import FeatureUpdate as FeatureUpdate
    from odradek.client.admin.features import VersionSpan as VersionSpan
    from odradek.client.admin.log_dirs import LogDirDescription as LogDirDescription
    from odradek.client.admin.log_dirs import ReplicaInfo as ReplicaInfo
    from odradek.client.admin.log_dirs import ReplicaLogDirs as ReplicaLogDirs
    from odradek.client.admin.log_dirs import TopicPartitionReplica as TopicPartitionReplica
    from odradek.client.admin.quotas import ClientQuotaEntity as ClientQuotaEntity
    from odradek.client.admin.quotas import QuotaFilter as QuotaFilter
    from odradek.client.admin.share_groups import ShareGroupDescription as ShareGroupDescription
    from odradek.client.admin.share_groups import ShareMember as ShareMember
    from odradek.client.admin.share_groups import ShareOffset as ShareOffset
    from odradek.client.admin.streams_groups import StreamsGroupDescription as StreamsGroupDescription
    from odradek.client.admin.streams_groups import StreamsMember as StreamsMember
    from odradek.client.admin.streams_groups import StreamsSubtopology as StreamsSubtopology
    from odradek.client.admin.streams_groups import StreamsTask as StreamsTask
    from odradek.client.admin.streams_groups import StreamsTasks as StreamsTasks
    from odradek.client.admin.tokens import DelegationToken as DelegationToken
    from odradek.client.admin.topology import RaftVoterEndpoint as RaftVoterEndpoint
    from odradek.client.admin.transactions import OpenTransaction as OpenTransaction
    from odradek.client.admin.transactions import ProducerIdAndEpoch as ProducerIdAndEpoch
    from odradek.client.admin.transactions import ProducerState as ProducerState
    from odradek.client.admin.transactions import TransactionDescription as TransactionDescription
    from odradek.client.admin.transactions import TransactionListing as TransactionListing
    from odradek.client.admin.users import ScramCredential as ScramCredential
    from odradek.client.admin.users import ScramDeletion as ScramDeletion
    from odradek.client.admin.users import ScramUpsertion as ScramUpsertion

__all__ = [
    "AclBinding",
    "AclFilter",
    "AclOperation",
    "AclPermissionType",
    "Admin",
    "AlterConfig",
    "AlterConfigOp",
    "ClientQuotaEntity",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSource",
    "ConfigSynonym",
    "DelegationToken",
    "ElectionType",
    "FeatureMetadata",
    "FeatureUpdate",
    "FeatureUpgradeType",
    "GroupDescription",
    "GroupListing",
    "GroupProtocolType",
    "GroupState",
    "GroupType",
    "IsolationLevel",
    "LogDirDescription",
    "MemberDescription",
    "NewTopic",
    "OffsetSpec",
    "OpenTransaction",
    "PartitionReassignment",
    "PatternType",
    "ProducerIdAndEpoch",
    "ProducerState",
    "QuorumDescription",
    "QuorumReplica",
    "QuotaEntityType",
    "QuotaFilter",
    "QuotaMatch",
    "RaftVoterEndpoint",
    "ReplicaInfo",
    "ReplicaLogDirs",
    "ResourceType",
    "ScramCredential",
    "ScramDeletion",
    "ScramMechanism",
    "ScramUpsertion",
    "ShareGroupDescription",
    "ShareMember",
    "ShareOffset",
    "StreamsGroupDescription",
    "StreamsMember",
    "StreamsSubtopology",
    "StreamsTask",
    "StreamsTasks",
    "TopicPartitionReplica",
    "TransactionDescription",
    "TransactionListing",
    "TransactionState",
    "VersionSpan",
    "raise_first",
]

# Loaded on first use, as a command that lists topics needs none of them.
_HOMES = {
    "RaftVoterEndpoint": "topology",
    "ShareGroupDescription": "share_groups",
    "ShareMember": "share_groups",
    "ShareOffset": "share_groups",
    "StreamsGroupDescription": "streams_groups",
    "StreamsMember": "streams_groups",
    "StreamsTask": "streams_groups",
    "StreamsTasks": "streams_groups",
    "StreamsSubtopology": "streams_groups",
    "FeatureMetadata": "features",
    "FeatureUpdate": "features",
    "VersionSpan": "features",
    "LogDirDescription": "log_dirs",
    "ReplicaInfo": "log_dirs",
    "ReplicaLogDirs": "log_dirs",
    "TopicPartitionReplica": "log_dirs",
    "ClientQuotaEntity": "quotas",
    "QuotaFilter": "quotas",
    "OpenTransaction": "transactions",
    "ProducerIdAndEpoch": "transactions",
    "ProducerState": "transactions",
    "TransactionDescription": "transactions",
    "TransactionListing": "transactions",
    "DelegationToken": "tokens",
    "ScramCredential": "users",
    "ScramDeletion": "users",
    "ScramUpsertion": "users",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
