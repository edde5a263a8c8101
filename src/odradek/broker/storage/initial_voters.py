"""The first voters of a quorum whose voters are in the metadata log, and the snapshot that has them (KIP-853).

Source: Kafka's `DynamicVoters`, `Formatter.writeDynamicQuorumSnapshot`, `Snapshots.BOOTSTRAP_SNAPSHOT_ID`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from odradek.broker.configuration.broker_config import Listener
from odradek.broker.storage.bootstrap_records import InvalidFormat
from odradek.kraft.checkpoints import CheckpointId, encode_checkpoint
from odradek.kraft.raft.voters import DYNAMIC_VOTERS, Endpoint, ReplicaKey, Voter, VoterSet
from odradek.log.directories.checkpoint_formats import decode_uuid, is_reserved_uuid
from odradek.wire.messages.control_records import KRaftVersionRecord

FIRST_SNAPSHOT: Final = CheckpointId(0, 0)
"""The snapshot that `storage format` writes, before all records of the log."""

_FORM: Final = "ID@HOST:PORT:DIRECTORY_ID"
_VOTER: Final = re.compile(r"(\d+)@(\[[^\]]+\]|[^:\s\[\]]+):(\d+):([A-Za-z0-9_-]{22})")


class InitialVoter(NamedTuple):
    """A controller that votes from the beginning."""

    node_id: int
    host: str
    port: int
    directory_id: bytes
    """The `directory.id` of its metadata directory."""


def parse_initial_voters(text: str) -> list[InitialVoter]:
    """The controllers of `--initial-controllers`, by id. Raises InvalidFormat."""
    found: dict[int, InitialVoter] = {}
    for part in (each.strip() for each in text.split(",")):
        if not part:
            continue
        match = _VOTER.fullmatch(part)
        if match is None or not 0 <= int(match[3]) <= 65535:
            raise InvalidFormat(f"--initial-controllers: {part!r} is not {_FORM}")
        node_id, host = int(match[1]), match[2].strip("[]")
        directory_id = decode_uuid(match[4])
        if is_reserved_uuid(directory_id):
            raise InvalidFormat(f"--initial-controllers: Kafka reserves the directory id {match[4]}")
        if node_id in found:
            raise InvalidFormat(f"--initial-controllers: node {node_id} is named twice")
        if any(each.directory_id == directory_id for each in found.values()):
            raise InvalidFormat(f"--initial-controllers: two nodes have the directory id {match[4]}")
        found[node_id] = InitialVoter(node_id, host, int(match[3]), directory_id)
    if not found:
        raise InvalidFormat(f"--initial-controllers names no controller: {_FORM},… expected")
    return [found[each] for each in sorted(found)]


def sole_voter(node_id: int, listener: Listener, directory_id: bytes) -> InitialVoter:
    """The voter of `--standalone`, with the address that it advertises."""
    return InitialVoter(node_id, listener.host or "localhost", listener.port, directory_id)


def first_snapshot(voters: Sequence[InitialVoter], listener_name: str, now_ms: int) -> bytes:
    """The bytes of the first snapshot: kraft.version 1 and the voters. `listener_name` is the controllers' listener."""
    voter_set = VoterSet(
        Voter(ReplicaKey(each.node_id, each.directory_id), (Endpoint(listener_name, each.host, each.port),))
        for each in voters
    )
    controls = (KRaftVersionRecord(0, DYNAMIC_VOTERS), voter_set.to_record())
    return encode_checkpoint(FIRST_SNAPSHOT, (), controls=controls, timestamp_ms=now_ms, last_timestamp_ms=now_ms)
