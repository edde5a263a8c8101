"""The admin client: topics, settings, groups, replicas, transactions, quotas, users, ACLs, features, the cluster."""

from odradek.client.admin.admin import Admin
from odradek.client.admin.configs import AlterConfig, ConfigEntry, ConfigResource, ConfigSynonym
from odradek.client.admin.enums import (
    AclOperation,
    AclPermissionType,
    AlterConfigOp,
    ConfigResourceType,
    ConfigSource,
    ElectionType,
    FeatureUpgradeType,
    GroupState,
    GroupType,
    PatternType,
    QuotaEntityType,
    QuotaMatch,
    ResourceType,
    ScramMechanism,
    TransactionState,
)
from odradek.client.admin.groups import GroupDescription, GroupListing, MemberDescription
from odradek.client.admin.replicas import PartitionReassignment
from odradek.client.admin.requests import raise_first
from odradek.client.admin.topics import NewTopic
from odradek.client.admin.topology import ClusterDescription, QuorumDescription, QuorumReplica

__all__ = [
    "AclOperation",
    "AclPermissionType",
    "Admin",
    "AlterConfig",
    "AlterConfigOp",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSource",
    "ConfigSynonym",
    "ElectionType",
    "FeatureUpgradeType",
    "GroupDescription",
    "GroupListing",
    "GroupState",
    "GroupType",
    "MemberDescription",
    "NewTopic",
    "PartitionReassignment",
    "PatternType",
    "QuorumDescription",
    "QuorumReplica",
    "QuotaEntityType",
    "QuotaMatch",
    "ResourceType",
    "ScramMechanism",
    "TransactionState",
    "raise_first",
]
