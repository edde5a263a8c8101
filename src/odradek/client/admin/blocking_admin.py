"""The admin client for threads, which wait in its methods.

Many threads may use it at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self, Unpack

from odradek.client.admin.admin import Admin
from odradek.client.admin.blocking_subjects import (
    BlockingAclsAdmin,
    BlockingFeaturesAdmin,
    BlockingGroupsAdmin,
    BlockingLogDirsAdmin,
    BlockingQuotasAdmin,
    BlockingRaftVotersAdmin,
    BlockingReplicasAdmin,
    BlockingShareGroupsAdmin,
    BlockingStreamsGroupsAdmin,
    BlockingTokensAdmin,
    BlockingTransactionsAdmin,
    BlockingUsersAdmin,
)
from odradek.client.arguments import keywords
from odradek.client.blocking import Blocking, calling, loop_for, waiting
from odradek.client.config import AdminOptions


class BlockingAdmin:
    """An admin client for threads: the methods of `Admin` and of its parts, which wait. Many threads may use it.

    Example:

        with BlockingAdmin(bootstrap_servers="127.0.0.1:9092") as admin:
            admin.create_topics([NewTopic("lines", num_partitions=4)])
            print(admin.list_topics())
    """

    __slots__ = ("_blocking", "_client")

    def __init__(self, *, blocking: Blocking | None = None, **options: Unpack[AdminOptions]) -> None:
        """Options as of `Admin`; `blocking` is the event loop to use. Raises ConfigError."""
        self._client = Admin(**options)
        self._blocking = loop_for(blocking)

    @classmethod
    def from_config(cls, config: Mapping[str, Any], **arguments: Any) -> Self:
        """As `Admin.from_config`."""
        return cls(**keywords(config, arguments))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """As `Admin.start`."""
        self._blocking.open(self._client)

    def close(self) -> None:
        """As `Admin.close`."""
        self._blocking.close_client(self._client)

    @property
    def config(self) -> AdminOptions:
        """All options as resolved."""
        return self._client.config

    @property
    def groups(self) -> BlockingGroupsAdmin:
        """Consumer groups: list, describe, delete, their offsets and members."""
        return BlockingGroupsAdmin(self._blocking, self._client.groups)

    @property
    def replicas(self) -> BlockingReplicasAdmin:
        """Replicas of partitions: reassign them, elect leaders, compare end offsets."""
        return BlockingReplicasAdmin(self._blocking, self._client.replicas)

    @property
    def log_dirs(self) -> BlockingLogDirsAdmin:
        """Log directories: describe them, move replicas between them."""
        return BlockingLogDirsAdmin(self._blocking, self._client.log_dirs)

    @property
    def share_groups(self) -> BlockingShareGroupsAdmin:
        """Share groups: describe them, their offsets."""
        return BlockingShareGroupsAdmin(self._blocking, self._client.share_groups)

    @property
    def streams_groups(self) -> BlockingStreamsGroupsAdmin:
        """Groups of Kafka Streams: describe them."""
        return BlockingStreamsGroupsAdmin(self._blocking, self._client.streams_groups)

    @property
    def raft_voters(self) -> BlockingRaftVotersAdmin:
        """Voters of a KRaft quorum: add, remove."""
        return BlockingRaftVotersAdmin(self._blocking, self._client.raft_voters)

    @property
    def quotas(self) -> BlockingQuotasAdmin:
        """Client quotas: describe, alter."""
        return BlockingQuotasAdmin(self._blocking, self._client.quotas)

    @property
    def users(self) -> BlockingUsersAdmin:
        """SCRAM credentials of users: describe, alter."""
        return BlockingUsersAdmin(self._blocking, self._client.users)

    @property
    def tokens(self) -> BlockingTokensAdmin:
        """Delegation tokens: create, renew, expire, describe."""
        return BlockingTokensAdmin(self._blocking, self._client.tokens)

    @property
    def acls(self) -> BlockingAclsAdmin:
        """Access control lists: describe, create, delete."""
        return BlockingAclsAdmin(self._blocking, self._client.acls)

    @property
    def transactions(self) -> BlockingTransactionsAdmin:
        """Transactions: list, describe, abort; their producers: describe, fence."""
        return BlockingTransactionsAdmin(self._blocking, self._client.transactions)

    @property
    def features(self) -> BlockingFeaturesAdmin:
        """Features of the cluster: describe, update."""
        return BlockingFeaturesAdmin(self._blocking, self._client.features)

    metrics = calling(Admin.metrics)
    """As `Admin.metrics`."""
    register_metrics = calling(Admin.register_metrics)
    """As `Admin.register_metrics`."""
    unregister_metrics = calling(Admin.unregister_metrics)
    """As `Admin.unregister_metrics`."""
    client_instance_id = waiting(Admin.client_instance_id)
    """As `Admin.client_instance_id`."""
    offers = waiting(Admin.offers)
    """As `Admin.offers`."""
    create_topics = waiting(Admin.create_topics)
    """As `Admin.create_topics`."""
    delete_topics = waiting(Admin.delete_topics)
    """As `Admin.delete_topics`."""
    delete_topics_by_id = waiting(Admin.delete_topics_by_id)
    """As `Admin.delete_topics_by_id`."""
    list_topics = waiting(Admin.list_topics)
    """As `Admin.list_topics`."""
    describe_topics = waiting(Admin.describe_topics)
    """As `Admin.describe_topics`."""
    describe_topics_by_id = waiting(Admin.describe_topics_by_id)
    """As `Admin.describe_topics_by_id`."""
    create_partitions = waiting(Admin.create_partitions)
    """As `Admin.create_partitions`."""
    delete_records = waiting(Admin.delete_records)
    """As `Admin.delete_records`."""
    list_offsets = waiting(Admin.list_offsets)
    """As `Admin.list_offsets`."""
    describe_configs = waiting(Admin.describe_configs)
    """As `Admin.describe_configs`."""
    alter_configs = waiting(Admin.alter_configs)
    """As `Admin.alter_configs`."""
    list_config_resources = waiting(Admin.list_config_resources)
    """As `Admin.list_config_resources`."""
    describe_cluster = waiting(Admin.describe_cluster)
    """As `Admin.describe_cluster`."""
    describe_quorum = waiting(Admin.describe_quorum)
    """As `Admin.describe_quorum`."""
    unregister_broker = waiting(Admin.unregister_broker)
    """As `Admin.unregister_broker`."""
