"""An authorizer like the one of a broker, made of the ACLs and settings that the broker describes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.authorization.acl_index import grouped
from odradek.authorization.authorizer import Authorizer, Settings
from odradek.cli.arguments.errors import CommandError
from odradek.client.admin import ConfigResource, ConfigResourceType

if TYPE_CHECKING:
    from odradek.client.admin import Admin

_SUPER_USERS = "super.users"
_ALLOWS_WITHOUT_ACL = "allow.everyone.if.no.acl.found"


async def authorizer_of(admin: Admin) -> Authorizer:
    """Decides as the broker with the lowest id does. Raises KafkaError, CommandError."""
    bindings = await admin.acls.describe()
    cluster = await admin.describe_cluster()
    if not cluster.brokers:
        raise CommandError("the cluster names no broker whose settings could be read")
    broker = ConfigResource(ConfigResourceType.BROKER, str(min(each.node_id for each in cluster.brokers)))
    described = (await admin.describe_configs([broker]))[broker]
    if isinstance(described, Exception):
        raise described
    values = {name: entry.value or "" for name, entry in described.items()}
    supers = frozenset(each.strip() for each in values.get(_SUPER_USERS, "").split(";") if each.strip())
    authorizer = Authorizer(Settings(supers, values.get(_ALLOWS_WITHOUT_ACL) == "true"))
    authorizer.update(grouped(bindings))
    return authorizer
