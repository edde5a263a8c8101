"""The first records of a KRaft cluster: its features, and SCRAM users that can log in from the beginning.

`storage format` writes them to `bootstrap.checkpoint`; the first leader of the quorum appends them to the metadata log.
Source: Kafka's `Formatter`, `BootstrapMetadata`, `ScramParser`.
"""

from __future__ import annotations

import base64
import binascii
import logging
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from odradek.kraft.checkpoints import CheckpointId, encode_checkpoint
from odradek.kraft.metadata_records import VersionedRecord
from odradek.log.directories.ownership import BOOTSTRAP
from odradek.metadata.features import (
    CONTROLLER_FEATURES,
    CONTROLLER_METADATA,
    ELR_VERSION,
    FEATURES,
    KRAFT_VERSION,
    METADATA_VERSION,
)
from odradek.metadata.metadata_versions import (
    METADATA_VERSIONS,
    SCRAM_SINCE,
    levels_of_release,
    metadata_version_of,
    name_of_metadata_version,
)
from odradek.ports.randomness import Random
from odradek.security.scram import MAX_ITERATIONS, MECHANISMS, MIN_ITERATIONS, credential_of, salted_password
from odradek.wire.messages.cluster_metadata import FeatureLevelRecord, UserScramCredentialRecord

logger = logging.getLogger("odradek.broker.storage")

_NEWEST: Final = max(METADATA_VERSIONS.values())
_BEFORE_ALL: Final = CheckpointId(0, 0)
_OFF_ONLY: Final = (ELR_VERSION, "share.version", "streams.version")
"""Features of Apache Kafka that our controllers do not have: level 0 is all that they can be given."""
_SCRAM_FORM: Final = "SCRAM-SHA-256=[name=NAME,password=PASSWORD]"
_COMPONENT: Final = re.compile(r'\s*([^=,]+)=("[^"]*"|[^,]*)(?:,|$)')
_COMPONENTS: Final = frozenset(("name", "password", "salt", "saltedpassword", "iterations"))


class InvalidFormat(ValueError):
    """An argument of `storage format` is wrong."""


class FirstRecords(NamedTuple):
    """`release` names the metadata.version among them."""

    release: str
    records: list[Any]

    def file_content(self, now_ms: int) -> bytes:
        """The bytes of `bootstrap.checkpoint`."""
        versioned = [VersionedRecord(each, 0) for each in self.records]
        return encode_checkpoint(_BEFORE_ALL, versioned, timestamp_ms=now_ms, last_timestamp_ms=0)


def first_records(
    features: Sequence[str],
    release: str | None,
    users: Sequence[str],
    random: Random,
    *,
    for_controller: bool = True,
    has_static_voters: bool = True,
) -> FirstRecords:
    """The records for arguments as of `--feature`, `--release-version` and `--add-scram`. Raises InvalidFormat.

    Controllers of this version do not decide at all levels of metadata.version: `for_controller` rejects the others.
    `has_static_voters`: the voters are in the configuration, and kraft.version is 0; else it is 1.
    """
    records = feature_records(features, release, kraft_version=0 if has_static_voters else 1)
    level = records[0].feature_level
    name = name_of_metadata_version(level)
    if for_controller and level < CONTROLLER_METADATA.min_level:
        needed = name_of_metadata_version(CONTROLLER_METADATA.min_level)
        raise InvalidFormat(f"metadata.version {name}: controllers of this version need {needed} or newer")
    if users and level < SCRAM_SINCE:
        raise InvalidFormat(f"--add-scram needs metadata.version {name_of_metadata_version(SCRAM_SINCE)} or newer")
    credentials: dict[tuple[str, int], UserScramCredentialRecord] = {}
    for text in users:
        record = _scram_record(text, random)
        if (record.name, record.mechanism) in credentials:
            raise InvalidFormat(f"--add-scram names the user {record.name} twice with the same mechanism")
        credentials[record.name, record.mechanism] = record
    return FirstRecords(name, [*records, *credentials.values()])


def feature_records(features: Sequence[str] = (), release: str | None = None, *, kraft_version: int = 0) -> list[Any]:
    """The features of a new cluster, metadata.version first. Raises InvalidFormat.

    kraft.version is not among them: a control record of the metadata log has it.
    """
    chosen = _chosen_levels(features, kraft_version)
    chosen.pop(KRAFT_VERSION, None)
    level = _metadata_version(chosen.pop(METADATA_VERSION, None), release)
    levels = {**levels_of_release(level), **chosen}
    others = [FeatureLevelRecord(name, each) for name, each in sorted(levels.items()) if each]
    return [FeatureLevelRecord(METADATA_VERSION, level), *others]


def without_unsupported_features(records: Sequence[Any]) -> list[Any]:
    """The first records that Apache's tool wrote without the features that our controllers do not have.

    A cluster whose metadata has a feature that its controllers cannot serve would admit no broker without it.
    """
    supported = {each.name for each in CONTROLLER_FEATURES}
    unknown = [each for each in records if isinstance(each, FeatureLevelRecord) and each.name not in supported]
    if unknown:
        names = ", ".join(f"{each.name}={each.feature_level}" for each in unknown)
        logger.warning("the cluster begins without features of %s that this version lacks: %s", BOOTSTRAP, names)
    return [each for each in records if each not in unknown]


def _chosen_levels(features: Sequence[str], kraft_version: int) -> dict[str, int]:
    spans = {each.name: range(each.min_level, each.max_level + 1) for each in FEATURES}
    spans[METADATA_VERSION] = range(min(METADATA_VERSIONS.values()), _NEWEST + 1)
    spans |= dict.fromkeys(_OFF_ONLY, range(1))
    spans[KRAFT_VERSION] = range(kraft_version, kraft_version + 1)
    found: dict[str, int] = {}
    for text in features:
        name, equals, level = text.partition("=")
        if not equals or not level.isascii() or not level.isdecimal():
            raise InvalidFormat(f"--feature {text}: NAME=LEVEL expected, the level as a number")
        if name not in spans:
            raise InvalidFormat(f"--feature {text}: there is no feature {name}; there are {', '.join(sorted(spans))}")
        if name in found:
            raise InvalidFormat(f"--feature {name} is given twice")
        if int(level) not in spans[name]:
            if name == KRAFT_VERSION:
                where = "in the metadata log" if kraft_version else "in controller.quorum.voters"
                raise InvalidFormat(f"--feature {text}: the voters are {where}: kraft.version is {kraft_version}")
            low, high = spans[name][0], spans[name][-1]
            supported = f"level {low}" if low == high else f"levels {low} to {high}"
            raise InvalidFormat(f"--feature {text}: this version supports {supported}")
        found[name] = int(level)
    return found


def _metadata_version(chosen: int | None, release: str | None) -> int:
    if release is None:
        return _NEWEST if chosen is None else chosen
    if chosen is not None:
        raise InvalidFormat("--release-version and --feature metadata.version contradict: give one of them")
    level = metadata_version_of(release)
    if level is None:
        first = next(iter(METADATA_VERSIONS))
        text = f"not a release from {first} to {name_of_metadata_version(_NEWEST)}"
        raise InvalidFormat(f"--release-version {release}: {text}")
    return level


def _scram_record(text: str, random: Random) -> UserScramCredentialRecord:
    """The record of `SCRAM-SHA-256=[name=alice,password=secret]`. Errors never quote a password."""
    name, equals, rest = text.strip().partition("=")
    mechanism = MECHANISMS.get(name)
    if mechanism is None or not equals:
        raise InvalidFormat(f"--add-scram: {_SCRAM_FORM} expected, with {' or '.join(MECHANISMS)}")
    if not (rest.startswith("[") and rest.endswith("]")):
        raise InvalidFormat(f"--add-scram {name}: {_SCRAM_FORM} expected, in brackets")
    fields = _components(name, rest[1:-1])
    user, password, salted_text = fields.get("name"), fields.get("password"), fields.get("saltedpassword")
    if not user:
        raise InvalidFormat(f"--add-scram {name}: name is missing")
    if not (password or salted_text):
        raise InvalidFormat(f"--add-scram {name}: password or saltedpassword is missing")
    if password and salted_text:
        raise InvalidFormat(f"--add-scram {name}: password and saltedpassword contradict: give one of them")
    if salted_text and "salt" not in fields:
        raise InvalidFormat(f"--add-scram {name}: saltedpassword needs its salt")
    iterations = fields.get("iterations", str(MIN_ITERATIONS))
    if not iterations.isdecimal() or not MIN_ITERATIONS <= int(iterations) <= MAX_ITERATIONS:
        raise InvalidFormat(f"--add-scram {name}: iterations is not a number from {MIN_ITERATIONS} to {MAX_ITERATIONS}")
    salt = _decoded(name, "salt", fields["salt"]) if "salt" in fields else random.uuid() + random.uuid()
    if salted_text:
        salted = _decoded(name, "saltedpassword", salted_text)
    else:
        salted = salted_password(mechanism, password or "", salt, int(iterations))
    made = credential_of(mechanism, salted, salt, int(iterations))
    return UserScramCredentialRecord(user, int(mechanism), made.salt, made.stored_key, made.server_key, made.iterations)


def _components(mechanism: str, text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        part = _COMPONENT.match(text, position)
        if part is None or part[1] not in _COMPONENTS or part[1] in found:
            expected = ", ".join(sorted(_COMPONENTS))
            raise InvalidFormat(f"--add-scram {mechanism}: a list of {expected} expected, each once as NAME=VALUE")
        found[part[1]] = part[2][1:-1] if len(part[2]) > 1 and part[2][0] == part[2][-1] == '"' else part[2]
        position = part.end()
    return found


def _decoded(mechanism: str, field: str, text: str) -> bytes:
    try:
        found = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        found = b""
    if not found:
        raise InvalidFormat(f"--add-scram {mechanism}: {field} is not base64")
    return found
