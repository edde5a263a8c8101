"""SCRAM users in the metadata store of stopped brokers: the first users of a cluster, before a broker serves.

As Kafka's `kafka-storage.sh format --add-scram`, but also later, for a cluster whose administrators are locked out.
Users are changed and described in the form of the admin client.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.client.admin.enums import ScramMechanism
from odradek.client.admin.users import ScramCredential, ScramDeletion, ScramUpsertion, salted_upsertion
from odradek.controller.scram_credentials import (
    Deletion,
    Upsertion,
    alter_scram_credentials,
    describe_scram_credentials,
)
from odradek.log.directories.ownership import METADATA_FILE
from odradek.metadata.changes import load_image
from odradek.metadata.nodes import BROKER_IDS
from odradek.metadata.stores.selection import open_store
from odradek.ports.disk import Disk
from odradek.ports.store import MetadataStore, StoreError
from odradek.wire.errors import KafkaError


class BrokersRunning(Exception):
    """Brokers are registered: only their controller may write the metadata store."""


async def alter_stored_users(
    config: BrokerConfig, disk: Disk, changes: Iterable[ScramUpsertion | ScramDeletion]
) -> dict[str, KafkaError | None]:
    """Change credentials in the store of a broker with this configuration; it is created if it is missing.

    Returns the outcome by user. Raises StoreError, BrokersRunning.
    """
    deletions: list[Deletion] = []
    upsertions: list[Upsertion] = []
    for change in changes:
        if isinstance(change, ScramDeletion):
            deletions.append(Deletion(change.user, change.mechanism))
        else:
            made = salted_upsertion(change)
            upsertions.append(Upsertion(made.name, made.mechanism, made.iterations, made.salt, made.salted_password))
    store = await _open(config, disk)
    try:
        if await store.children(BROKER_IDS):
            raise BrokersRunning
        decision = alter_scram_credentials(await load_image(store), deletions, upsertions)
        if decision.operations:
            await store.apply(decision.operations)
    finally:
        await store.close()
    return {
        each.user: None if each.failure is None else KafkaError(each.failure.code, each.failure.message)
        for each in decision.replies
    }


async def describe_stored_users(config: BrokerConfig, disk: Disk) -> Mapping[str, list[ScramCredential]]:
    """All users with credentials in the store of a configuration. Raises StoreError."""
    store = await _open(config, disk)
    try:
        described = describe_scram_credentials(await load_image(store), None)
    finally:
        await store.close()
    return {
        each.user: [ScramCredential(ScramMechanism(kind), iterations) for kind, iterations in each.credentials]
        for each in described
    }


async def _open(config: BrokerConfig, disk: Disk) -> MetadataStore:
    first = config.log_dirs[0]
    try:
        disk.make_directories(first)
    except OSError as error:
        raise StoreError(f"{first}: {error.strerror}") from error
    return await open_store(config, disk, f"{first}/{METADATA_FILE}")
