"""The file `quorum-state`: the epoch, vote and leader that a voter must not forget, as JSON.

Version 0 belongs to kraft.version 0, version 1 to kraft.version 1 (KIP-853). Source: Kafka's `FileQuorumStateStore`.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any, Final

from odradek.kraft.errors import CorruptMetadata
from odradek.wire.messages.quorum_state import QuorumStateData, QuorumStateDataVoter
from odradek.wire.primitives import ZERO_UUID

FILE_NAME: Final = "quorum-state"
_VERSION: Final = "data_version"


def encode_quorum_state(state: QuorumStateData, version: int) -> bytes:
    """The content of the file. Raises ValueError for a version other than 0 and 1."""
    fields: dict[str, Any] = {
        "leaderId": state.leader_id,
        "leaderEpoch": state.leader_epoch,
        "votedId": state.voted_id,
    }
    if version == 0:
        voters = state.current_voters
        fields = {"clusterId": state.cluster_id, **fields, "appliedOffset": state.applied_offset}
        fields["currentVoters"] = None if voters is None else [{"voterId": each.voter_id} for each in voters]
    elif version == 1:
        fields["votedDirectoryId"] = urlsafe_b64encode(state.voted_directory_id).rstrip(b"=").decode()
    else:
        raise ValueError(f"quorum-state has no version {version}")
    return json.dumps({**fields, _VERSION: version}, separators=(",", ":")).encode()


def decode_quorum_state(data: bytes) -> tuple[QuorumStateData, int]:
    """The state and the version of the file. Raises CorruptMetadata."""
    try:
        fields = json.loads(data)
        version = fields[_VERSION]
        state = QuorumStateData(
            leader_id=_number(fields, "leaderId"),
            leader_epoch=_number(fields, "leaderEpoch"),
            voted_id=_number(fields, "votedId"),
        )
        if version == 0:
            voters = fields["currentVoters"]
            state.cluster_id = str(fields["clusterId"])
            state.applied_offset = _number(fields, "appliedOffset")
            state.current_voters = (
                None if voters is None else [QuorumStateDataVoter(_number(each, "voterId")) for each in voters]
            )
        elif version == 1:
            state.voted_directory_id = urlsafe_b64decode(fields["votedDirectoryId"] + "==")
            if len(state.voted_directory_id) != len(ZERO_UUID):
                raise CorruptMetadata(f"{FILE_NAME}: {fields['votedDirectoryId']!r} is not a UUID")
        else:
            raise CorruptMetadata(f"{FILE_NAME} has the unknown version {version}")
    except CorruptMetadata:
        raise
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptMetadata(f"{FILE_NAME} is damaged: {error!r}") from error
    return state, version


def _number(fields: dict[str, Any], name: str) -> int:
    found = fields[name]
    if not isinstance(found, int):
        raise TypeError(f"{name} is {found!r}")
    return found
