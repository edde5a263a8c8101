"""The parts of the admin client for threads, which wait in their methods."""

from __future__ import annotations

from odradek.client.admin.acls import AclsAdmin
from odradek.client.admin.features import FeaturesAdmin
from odradek.client.admin.groups import GroupsAdmin
from odradek.client.admin.log_dirs import LogDirsAdmin
from odradek.client.admin.quotas import QuotasAdmin
from odradek.client.admin.raft_voters import RaftVotersAdmin
from odradek.client.admin.replicas import ReplicasAdmin
from odradek.client.admin.share_groups import ShareGroupsAdmin
from odradek.client.admin.streams_groups import StreamsGroupsAdmin
from odradek.client.admin.tokens import TokensAdmin
from odradek.client.admin.transactions import TransactionsAdmin
from odradek.client.admin.users import UsersAdmin
from odradek.client.blocking import Blocking, waiting


class BlockingAclsAdmin:
    """`admin.acls` of a `BlockingAdmin`."""

    __slots__ = ("_blocking", "_client")

    def __init__(self, blocking: Blocking, client: AclsAdmin) -> None:
        """`blocking` runs the event loop of `client`."""
        self._blocking = blocking
        self._client = client

    describe = waiting(AclsAdmin.describe)
    """As `AclsAdmin.describe`."""
    create = waiting(AclsAdmin.create)
    """As `AclsAdmin.create`."""
    delete = waiting(AclsAdmin.delete)
    """As `AclsAdmin.delete`."""


class BlockingFeaturesAdmin:
    """`admin.features` of a `BlockingAdmin`."""

    __slots__ = ("_blocking", "_client")

    def __init__(self, blocking: Blocking, client: FeaturesAdmin) -> None:
        """`blocking` runs the event loop of `client`."""
        self._blocking = blocking
        self._client = client

    describe = waiting(FeaturesAdmin.describe)
    """As `FeaturesAdmin.describe`."""
    update = waiting(FeaturesAdmin.update)
    """As `FeaturesAdmin.update`."""


class BlockingGroupsAdmin:
    """`admin.groups` of a `BlockingAdmin`."""

    __slots__ = ("_blocking", "_client")

    def __init__(self, blocking: Blocking, client: GroupsAdmin) -> None:
        """`blocking` runs the event loop of `client`."""
        self._blocking = blocking
        self._client = client

    list = waiting(GroupsAdmin.list)
    """As `GroupsAdmin.list`."""
    describe = waiting(GroupsAdmin.describe)
    """As `GroupsAdmin.describe`."""
    delete = waiting(GroupsAdmin.delete)
    """As `GroupsAdmin.delete`."""
    offsets = waiting(GroupsAdmin.offsets)
    """As `GroupsAdmin.offsets`."""
    alter_offsets = waiting(GroupsAdmin.alter_offsets)
    """As `GroupsAdmin.alter_offsets`."""
    delete_offsets = waiting(GroupsAdmin.delete_offsets)
    """As `GroupsAdmin.delete_offsets`."""
    remove_members = waiting(GroupsAdmin.remove_members)
    """As `GroupsAdmin.remove_members`."""


class BlockingLogDirsAdmin:
    """`admin.log_dirs` of a `BlockingAdmin`."""

    __slots__ = ("_blocking", "_client")

    def __init__(self, blocking: Blocking, client: LogDirsAdmin) -> None:
        """`blocking` runs the event loop of `client`."""
        self._blocking = blocking
        self._client = client

    describe = waiting(LogDirsAdmin.describe)
    """As `LogDirsAdmin.describe`."""
    describe_replicas = waiting(LogDirsAdmin.describe_replicas)
    """As `LogDirsAdmin.describe_replicas`."""
    alter = waiting(LogDirsAdmin.alter)
    """As `LogDirsAdmin.alter`."""


class BlockingQuotasAdmin:
    """`admin.quotas` of a `BlockingAdmin`."""

    __slots__ = ("_blocking", "_client")

    def __init__(self, blocking: Blocking, client: QuotasAdmin) -> None:
        """`blocking` runs the event loop of `client`."""
        self._blocking = blocking
        self._client = client

    describe = waiting(QuotasAdmin.describe)
    """As `QuotasAdmin.describe`."""
    alter = waiting(QuotasAdmin.alter)
    """As `QuotasAdmin.alter`."""


class BlockingRaftVotersAdmin:
    """`admin.raft_voters` of a `BlockingAdmin`."""

    __slots__ = ("_blocking", "_client")

    def __init__(self, blocking: Blocking, client: RaftVotersAdmin) -> None:
        """`blocking` runs the event loop of `client`."""
        self._blocking = blocking
        self._client = client

    add = waiting(RaftVotersAdmin.add)
    """As `RaftVotersAdmin.add`."""
    remove = waiting(RaftVotersAdmin.remove)
    """As `RaftVotersAdmin.remove`."""


class BlockingReplicasAdmin:
    """`admin.replicas` of a `BlockingAdmin`."""

    __slots__ = ("_blocking", "_client")

    def __init__(self, blocking: Blocking, client: ReplicasAdmin) -> None:
        """`blocking` runs the event loop of `client`."""
        self._blocking = blocking
        self._client = client

    reassign = waiting(ReplicasAdmin.reassign)
    """As `ReplicasAdmin.reassign`."""
    reassignments = waiting(ReplicasAdmin.reassignments)
    """As `ReplicasAdmin.reassignments`."""
    elect = waiting(ReplicasAdmin.elect)
    """As `ReplicasAdmin.elect`."""
    end_offsets = waiting(ReplicasAdmin.end_offsets)
    """As `ReplicasAdmin.end_offsets`."""
    all_end_offsets = waiting(ReplicasAdmin.all_end_offsets)
    """As `ReplicasAdmin.all_end_offsets`."""


class BlockingShareGroupsAdmin:
    """`admin.share_groups` of a `BlockingAdmin`."""

    __slots__ = ("_blocking", "_client")

    def __init__(self, blocking: Blocking, client: ShareGroupsAdmin) -> None:
        """`blocking` runs the event loop of `client`."""
        self._blocking = blocking
        self._client = client

    describe = waiting(ShareGroupsAdmin.describe)
    """As `ShareGroupsAdmin.describe`."""
    offsets = waiting(ShareGroupsAdmin.offsets)
    """As `ShareGroupsAdmin.offsets`."""
    alter_offsets = waiting(ShareGroupsAdmin.alter_offsets)
    """As `ShareGroupsAdmin.alter_offsets`."""
    delete_offsets = waiting(ShareGroupsAdmin.delete_offsets)
    """As `ShareGroupsAdmin.delete_offsets`."""


class BlockingStreamsGroupsAdmin:
    """`admin.streams_groups` of a `BlockingAdmin`."""

    __slots__ = ("_blocking", "_client")

    def __init__(self, blocking: Blocking, client: StreamsGroupsAdmin) -> None:
        """`blocking` runs the event loop of `client`."""
        self._blocking = blocking
        self._client = client

    describe = waiting(StreamsGroupsAdmin.describe)
    """As `StreamsGroupsAdmin.describe`."""


class BlockingTokensAdmin:
    """`admin.tokens` of a `BlockingAdmin`."""

    __slots__ = ("_blocking", "_client")

    def __init__(self, blocking: Blocking, client: TokensAdmin) -> None:
        """`blocking` runs the event loop of `client`."""
        self._blocking = blocking
        self._client = client

    create = waiting(TokensAdmin.create)
    """As `TokensAdmin.create`."""
    renew = waiting(TokensAdmin.renew)
    """As `TokensAdmin.renew`."""
    expire = waiting(TokensAdmin.expire)
    """As `TokensAdmin.expire`."""
    describe = waiting(TokensAdmin.describe)
    """As `TokensAdmin.describe`."""


class BlockingTransactionsAdmin:
    """`admin.transactions` of a `BlockingAdmin`."""

    __slots__ = ("_blocking", "_client")

    def __init__(self, blocking: Blocking, client: TransactionsAdmin) -> None:
        """`blocking` runs the event loop of `client`."""
        self._blocking = blocking
        self._client = client

    list = waiting(TransactionsAdmin.list)
    """As `TransactionsAdmin.list`."""
    describe = waiting(TransactionsAdmin.describe)
    """As `TransactionsAdmin.describe`."""
    describe_producers = waiting(TransactionsAdmin.describe_producers)
    """As `TransactionsAdmin.describe_producers`."""
    abort = waiting(TransactionsAdmin.abort)
    """As `TransactionsAdmin.abort`."""
    fence = waiting(TransactionsAdmin.fence)
    """As `TransactionsAdmin.fence`."""
    force_terminate = waiting(TransactionsAdmin.force_terminate)
    """As `TransactionsAdmin.force_terminate`."""


class BlockingUsersAdmin:
    """`admin.users` of a `BlockingAdmin`."""

    __slots__ = ("_blocking", "_client")

    def __init__(self, blocking: Blocking, client: UsersAdmin) -> None:
        """`blocking` runs the event loop of `client`."""
        self._blocking = blocking
        self._client = client

    describe = waiting(UsersAdmin.describe)
    """As `UsersAdmin.describe`."""
    alter = waiting(UsersAdmin.alter)
    """As `UsersAdmin.alter`."""
