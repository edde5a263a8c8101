"""Formatting the directories of a KRaft node: what is checked before, what is written, in which order."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from pathlib import Path

import pytest

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.storage.bootstrap_records import (
    InvalidFormat,
    feature_records,
    first_records,
    without_unsupported_features,
)
from odradek.broker.storage.formatting import (
    FormatRequest,
    UnfitDirectories,
    describe_storage,
    format_directories,
    plan_format,
)
from odradek.broker.storage.initial_voters import FIRST_SNAPSHOT
from odradek.kraft.checkpoints import read_checkpoint
from odradek.kraft.metadata_records import decode_metadata_record
from odradek.log.directories.checkpoint_formats import encode_uuid, parse_meta_properties
from odradek.ports.disk import SystemDisk
from odradek.ports.randomness import SeededRandom
from odradek.wire.messages.cluster_metadata import FeatureLevelRecord, UserScramCredentialRecord
from tests.unit.log.support import StandingClock

CLUSTER = "4L6g3nShT-eMCtK--X86sw"
OTHER = "MkU3OEVBNTcwNTJENDM2Qk"
"""An id of many tutorials: its last character has bits beyond the 16 bytes."""
DIRECTORY = "JEXY6aqzQY-32P5TStzaFg"
VOTERS = f"8@[::1]:9095:MvDxzVmcRsaTz33bUuRU6A,7@localhost:9093:{DIRECTORY}"


class RecordingDisk(SystemDisk):
    """Keeps the order of files and directories that were made durable."""

    def __init__(self) -> None:
        super().__init__()
        self.durable: list[str] = []

    def write_atomic(self, path: str, data: bytes | bytearray | memoryview, *, sync: bool = True) -> None:
        super().write_atomic(path, data, sync=sync)
        if sync:
            self.durable.append(path)

    def sync_directory(self, path: str) -> None:
        super().sync_directory(path)
        self.durable.append(path)


def config_of(place: Path, **other: str) -> BrokerConfig:
    """A node with two log directories and another one for metadata."""
    settings = {
        "process.roles": "broker",
        "node.id": "7",
        "controller.quorum.voters": "1@localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": f"{place}/a,{place}/b",
        "metadata.log.dir": f"{place}/m/eta",
        **{name.replace("_", "."): value for name, value in other.items()},
    }
    return BrokerConfig(settings)


def formatted(config: BrokerConfig, request: FormatRequest, disk: SystemDisk | None = None) -> list[str]:
    disk = disk or SystemDisk()
    return list(format_directories(disk, plan_format(config, disk, StandingClock(), SeededRandom(1), request)))


def rejected(config: BrokerConfig, request: FormatRequest) -> str:
    with pytest.raises((InvalidFormat, UnfitDirectories)) as found:
        formatted(config, request)
    return str(found.value)


def records_in(path: Path) -> list[object]:
    entries = read_checkpoint((path / "bootstrap.checkpoint").read_bytes()).entries
    return [decode_metadata_record(each.value).record for each in entries]


def levels_in(path: Path) -> Mapping[str, int]:
    return {each.name: each.feature_level for each in records_in(path) if isinstance(each, FeatureLevelRecord)}


def test_every_directory_gets_properties_with_an_id_of_its_own(tmp_path: Path) -> None:
    paths = formatted(config_of(tmp_path), FormatRequest(CLUSTER))
    assert [Path(path) for path in paths] == [tmp_path / "a", tmp_path / "b", tmp_path / "m" / "eta"]
    found = [parse_meta_properties((Path(path) / "meta.properties").read_bytes()) for path in paths]
    assert {(each.version, each.cluster_id, each.node_id) for each in found} == {(1, CLUSTER, 7)}
    assert len({each.directory_id for each in found}) == 3


def test_bootstrap_has_the_features_of_a_new_cluster_in_order(tmp_path: Path) -> None:
    formatted(config_of(tmp_path), FormatRequest(CLUSTER))
    records = records_in(tmp_path / "m" / "eta")
    assert records == [
        FeatureLevelRecord("metadata.version", 30),
        FeatureLevelRecord("group.version", 1),
        FeatureLevelRecord("transaction.version", 2),
    ]


@pytest.mark.parametrize(
    ("release", "features", "expected"),
    [
        ("4.0", (), {"metadata.version": 25, "group.version": 1, "transaction.version": 2}),
        ("4.0-IV1", (), {"metadata.version": 23, "group.version": 1}),
        ("3.9.1", ("group.version=1",), {"metadata.version": 21, "group.version": 1}),
        (None, ("metadata.version=7", "share.version=0"), {"metadata.version": 7}),
        (None, ("transaction.version=0",), {"metadata.version": 30, "group.version": 1}),
    ],
)
def test_levels_are_those_of_the_release_and_the_features(
    tmp_path: Path, release: str | None, features: tuple[str, ...], expected: Mapping[str, int]
) -> None:
    formatted(config_of(tmp_path), FormatRequest(CLUSTER, features, release))
    assert levels_in(tmp_path / "a") == expected


@pytest.mark.parametrize(
    ("request_of", "message"),
    [
        (FormatRequest("x"), "is not a UUID"),
        (FormatRequest("4L6g3nShT+eMCtK//X86sw"), "is not a UUID"),
        (FormatRequest("A" * 22), "is reserved"),
        (FormatRequest("AAAAAAAAAAAAAAAAAAAAAQ"), "is reserved"),
        (FormatRequest(CLUSTER, ("group.version",)), "NAME=LEVEL expected"),
        (FormatRequest(CLUSTER, ("colour=1",)), "there is no feature colour"),
        (FormatRequest(CLUSTER, ("group.version=2",)), "this version supports levels 0 to 1"),
        (FormatRequest(CLUSTER, ("share.version=1",)), "this version supports level 0"),
        (FormatRequest(CLUSTER, ("kraft.version=1",)), "the voters are in controller.quorum.voters"),
        (FormatRequest(CLUSTER, is_standalone=True), "--standalone: the voters are in controller.quorum.voters"),
        (FormatRequest(CLUSTER, initial_controllers=VOTERS), "--initial-controllers: the voters are in controller"),
        (FormatRequest(CLUSTER, ("group.version=1", "group.version=0")), "given twice"),
        (FormatRequest(CLUSTER, (), "3.2"), "not a release from 3.3-IV3 to 4.3-IV0"),
        (FormatRequest(CLUSTER, ("metadata.version=30",), "4.3"), "contradict"),
        (FormatRequest(CLUSTER, (), "3.5-IV1", ("SCRAM-SHA-256=[name=a,password=b]",)), "3.5-IV2 or newer"),
    ],
)  # fmt: skip
def test_wrong_argument_is_rejected_and_nothing_is_written(
    tmp_path: Path, request_of: FormatRequest, message: str
) -> None:
    assert message in rejected(config_of(tmp_path), request_of)
    assert list(tmp_path.iterdir()) == []


def test_id_whose_last_character_has_spare_bits_is_accepted(tmp_path: Path) -> None:
    formatted(config_of(tmp_path), FormatRequest(OTHER))
    found = parse_meta_properties((tmp_path / "a" / "meta.properties").read_bytes())
    assert found.cluster_id == OTHER


@pytest.mark.parametrize(
    ("roles", "message"), [("", "is not set"), ("broker,controller", "keeps its metadata in SQLite")]
)
def test_node_outside_a_quorum_is_not_formatted(tmp_path: Path, roles: str, message: str) -> None:
    listeners = "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093"
    voters = "7@localhost:9093"
    config = config_of(
        tmp_path, process_roles=roles, listeners=listeners, metadata_log_dir=f"{tmp_path}/a",
        controller_quorum_voters=voters,
    )  # fmt: skip
    assert message in rejected(config, FormatRequest(CLUSTER))


def controller_of(place: Path) -> BrokerConfig:
    """A voter of a quorum, whose broker settings are those of `config_of`."""
    return config_of(
        place,
        process_roles="controller",
        listeners="CONTROLLER://localhost:9093",
        controller_quorum_voters="7@localhost:9093",
    )


def test_controller_is_formatted_at_the_levels_it_decides_at_only(tmp_path: Path) -> None:
    config = controller_of(tmp_path)
    assert "need 3.7-IV2 or newer" in rejected(config, FormatRequest(CLUSTER, (), "3.7-IV1"))
    assert len(formatted(config, FormatRequest(CLUSTER, (), "3.7-IV2"))) == 3


def test_node_of_both_roles_is_formatted_as_one_of_several_voters(tmp_path: Path) -> None:
    config = config_of(
        tmp_path,
        process_roles="broker,controller",
        listeners="PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        controller_quorum_voters="7@localhost:9093,8@localhost:9095",
    )
    assert "need 3.7-IV2 or newer" in rejected(config, FormatRequest(CLUSTER, ("metadata.version=16",)))
    assert len(formatted(config, FormatRequest(CLUSTER))) == 3


def test_features_that_controllers_lack_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """Apache's tool writes them by default, and a broker of ours could not join the cluster then."""
    credential = user_of("SCRAM-SHA-256=[name=alice,password=x]")
    lacking = [FeatureLevelRecord("eligible.leader.replicas.version", 1), FeatureLevelRecord("share.version", 1)]
    own = feature_records()
    assert without_unsupported_features([own[0], *lacking, *own[1:], credential]) == [*own, credential]
    assert "eligible.leader.replicas.version=1, share.version=1" in caplog.text
    caplog.clear()
    assert without_unsupported_features(own) == own
    assert caplog.text == ""


# --- directories ---


def test_formatted_directory_is_rejected_or_skipped_on_request(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    formatted(config, FormatRequest(CLUSTER))
    before = (tmp_path / "a" / "meta.properties").read_bytes()
    assert f"{tmp_path}/a is already formatted: --ignore-formatted" in rejected(config, FormatRequest(CLUSTER))
    (tmp_path / "b" / "meta.properties").unlink()
    assert formatted(config, FormatRequest(CLUSTER, ignore_formatted=True)) == [f"{tmp_path}/b"]
    assert formatted(config, FormatRequest(CLUSTER, ignore_formatted=True)) == []
    assert (tmp_path / "a" / "meta.properties").read_bytes() == before


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        (f"version=1\nnode.id=7\ncluster.id={OTHER}\n", f"belongs to cluster {OTHER}"),
        (f"version=1\nnode.id=8\ncluster.id={CLUSTER}\n", "belongs to node 8, and node.id is 7"),
        (f"version=0\nbroker.id=7\ncluster.id={CLUSTER}\n", "a broker with ZooKeeper"),
        (f"version=1\nnode.id=7\ncluster.id={CLUSTER}\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAg\n", "reserved directory.id"),
        ("version=9\n", "unknown version 9"),
    ],
)
def test_directory_of_another_owner_is_rejected_even_if_skipped(tmp_path: Path, properties: str, message: str) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "meta.properties").write_text(properties)
    assert message in rejected(config_of(tmp_path), FormatRequest(CLUSTER, ignore_formatted=True))
    assert not (tmp_path / "a").exists()


def test_copied_directory_is_rejected(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    formatted(config, FormatRequest(CLUSTER))
    (tmp_path / "b" / "meta.properties").write_bytes((tmp_path / "a" / "meta.properties").read_bytes())
    assert "have the same directory.id" in rejected(config, FormatRequest(CLUSTER, ignore_formatted=True))


def test_metadata_log_without_properties_is_not_given_to_another_cluster(tmp_path: Path) -> None:
    (tmp_path / "m" / "eta" / "__cluster_metadata-0").mkdir(parents=True)
    assert "has a metadata log" in rejected(config_of(tmp_path), FormatRequest(CLUSTER))


def test_file_in_the_place_of_a_directory_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("")
    assert f"{tmp_path}/b is not a directory" in rejected(config_of(tmp_path), FormatRequest(CLUSTER))


def test_directory_named_twice_is_formatted_once(tmp_path: Path) -> None:
    config = config_of(tmp_path, log_dirs=f"{tmp_path}/a", metadata_log_dir=f"{tmp_path}/a/")
    assert len(formatted(config, FormatRequest(CLUSTER))) == 1


def test_properties_are_durable_after_all_else(tmp_path: Path) -> None:
    """A power loss leaves a directory formatted or not, never formatted without its first records or its name."""
    disk = RecordingDisk()
    config = config_of(tmp_path, log_dirs=f"{tmp_path}/x/y", metadata_log_dir=f"{tmp_path}/x/y")
    formatted(config, FormatRequest(CLUSTER), disk)
    place = str(tmp_path)
    assert {place, f"{place}/x"} == set(disk.durable[:2])
    files = [path for path in disk.durable if path not in (place, f"{place}/x", f"{place}/x/y")]
    assert files == [f"{place}/x/y/bootstrap.checkpoint", f"{place}/x/y/meta.properties"]


# --- users ---


def keys_of(password: str, salt: bytes, iterations: int) -> tuple[bytes, bytes]:
    """RFC 5802 in its own words, for SCRAM-SHA-256."""
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
    client = hmac.digest(salted, b"Client Key", "sha256")
    return hashlib.sha256(client).digest(), hmac.digest(salted, b"Server Key", "sha256")


def user_of(text: str) -> UserScramCredentialRecord:
    user = first_records((), None, (text,), SeededRandom(1)).records[-1]
    assert isinstance(user, UserScramCredentialRecord)
    return user


def test_password_becomes_a_credential_with_a_random_salt() -> None:
    user = user_of("SCRAM-SHA-256=[name=alice,iterations=8192,password=alice-secret]")
    assert (user.name, user.mechanism, user.iterations, len(user.salt)) == ("alice", 1, 8192, 32)
    assert (user.stored_key, user.server_key) == keys_of("alice-secret", user.salt, 8192)


def test_quoted_password_may_have_commas() -> None:
    user = user_of('SCRAM-SHA-256=[name=alice,password="a,b=c",iterations=4096]')
    assert (user.stored_key, user.server_key) == keys_of("a,b=c", user.salt, 4096)


def test_salted_password_is_taken_as_it_is() -> None:
    salt = b"pepper"
    salted = base64.b64encode(hashlib.pbkdf2_hmac("sha256", b"secret", salt, 4096)).decode()
    user = user_of(f'SCRAM-SHA-256=[name=bob,salt="{base64.b64encode(salt).decode()}",saltedpassword="{salted}"]')
    assert (user.stored_key, user.server_key) == keys_of("secret", salt, 4096)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("alice:secret", "with SCRAM-SHA-256 or SCRAM-SHA-512"),
        ("SCRAM-SHA-1=[name=a,password=secret]", "with SCRAM-SHA-256 or SCRAM-SHA-512"),
        ("SCRAM-SHA-256=name=a,password=secret", "in brackets"),
        ("SCRAM-SHA-256=[password=secret]", "name is missing"),
        ("SCRAM-SHA-256=[name=a]", "password or saltedpassword is missing"),
        ("SCRAM-SHA-256=[name=a,password=secret,saltedpassword=YWJj]", "contradict"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=YWJj]", "needs its salt"),
        ("SCRAM-SHA-256=[name=a,salt=!,saltedpassword=YWJj]", "salt is not base64"),
        ("SCRAM-SHA-256=[name=a,password=secret,iterations=4095]", "from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,password=secret,colour=red]", "each once as NAME=VALUE"),
        ("SCRAM-SHA-256=[name=a,name=b,password=secret]", "each once as NAME=VALUE"),
    ],
)
def test_wrong_credential_is_rejected_without_its_password(text: str, message: str) -> None:
    with pytest.raises(InvalidFormat, match=message) as found:
        first_records((), None, (text,), SeededRandom(1))
    assert "secret" not in str(found.value).replace("password=PASSWORD", "")


def test_user_named_twice_with_a_mechanism_is_rejected() -> None:
    one, two = (f"SCRAM-SHA-256=[name=a,password={password}]" for password in "xy")
    with pytest.raises(InvalidFormat, match="twice"):
        first_records((), None, (one, two), SeededRandom(1))


# --- info ---


def test_info_names_directories_that_differ(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    formatted(config, FormatRequest(CLUSTER))
    found = describe_storage(config, SystemDisk())
    assert (found.properties or {})["cluster.id"] == CLUSTER
    assert (len(found.directories), found.problems) == (3, [])
    (tmp_path / "b" / "meta.properties").write_text(f"version=1\nnode.id=7\ncluster.id={OTHER}\n")
    (tmp_path / "m" / "eta" / "meta.properties").write_text(f"version=1\nnode.id=8\ncluster.id={CLUSTER}\n")
    assert describe_storage(config, SystemDisk()).problems == [
        "Mismatched cluster IDs between storage directories.",
        "Mismatched node IDs between storage directories.",
    ]


def test_info_reports_directories_of_other_nodes_and_of_zookeeper(tmp_path: Path) -> None:
    for name in ("a", "b", "m/eta"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "meta.properties").write_text(f"version=0\nbroker.id=3\ncluster.id={CLUSTER}\n")
    found = describe_storage(config_of(tmp_path), SystemDisk())
    assert (found.properties or {})["broker.id"] == "3"
    assert found.problems == [
        "The directories are of node 3, and node.id is 7.",
        "The directories are formatted for a broker with ZooKeeper, and process.roles is set.",
    ]


def test_info_reports_a_damaged_file_and_reads_the_others(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    formatted(config, FormatRequest(CLUSTER))
    (tmp_path / "a" / "meta.properties").write_text("version=9\n")
    found = describe_storage(config, SystemDisk())
    assert found.properties is not None
    (problem,) = found.problems
    assert problem.startswith(f"Error loading {tmp_path}/a/meta.properties")


# --- voters in the metadata log (KIP-853) ---


def dynamic_of(place: Path, **other: str) -> BrokerConfig:
    """A controller whose voters are in the metadata log."""
    changed = {
        "process_roles": "controller",
        "listeners": "CONTROLLER://:9093",
        "controller_quorum_voters": "",
        "controller_quorum_bootstrap_servers": "localhost:9093",
        "metadata_log_dir": f"{place}/m",
        "log_dirs": f"{place}/a",
    }
    return config_of(place, **{**changed, **other})


def voters_in(path: Path) -> list[tuple[int, str, list[tuple[str, str, int]]]]:
    """Id, directory id and endpoints of the voters in the first snapshot."""
    content = read_checkpoint((path / "__cluster_metadata-0" / FIRST_SNAPSHOT.file_name).read_bytes())
    version, voters = content.controls
    assert (version.k_raft_version, list(content.entries)) == (1, [])
    return [
        (each.voter_id, encode_uuid(each.voter_directory_id), [(to.name, to.host, to.port) for to in each.endpoints])
        for each in voters.voters
    ]


def directory_id_in(path: Path) -> str:
    return encode_uuid(parse_meta_properties((path / "meta.properties").read_bytes()).directory_id or b"")


def test_standalone_controller_is_the_only_voter_with_its_directory(tmp_path: Path) -> None:
    disk = RecordingDisk()
    formatted(dynamic_of(tmp_path), FormatRequest(CLUSTER, is_standalone=True), disk)
    own = directory_id_in(tmp_path / "m")
    assert voters_in(tmp_path / "m") == [(7, own, [("CONTROLLER", "localhost", 9093)])]
    assert own != directory_id_in(tmp_path / "a")
    assert not (tmp_path / "a" / "__cluster_metadata-0").exists()
    assert levels_in(tmp_path / "m") == {"metadata.version": 30, "group.version": 1, "transaction.version": 2}
    snapshot, properties = (
        f"{tmp_path}/m/__cluster_metadata-0/{FIRST_SNAPSHOT.file_name}",
        f"{tmp_path}/m/meta.properties",
    )
    assert disk.durable.index(snapshot) < disk.durable.index(properties)


def test_standalone_controller_has_the_address_that_it_advertises(tmp_path: Path) -> None:
    config = dynamic_of(tmp_path, advertised_listeners="CONTROLLER://c7.example:9999")
    formatted(config, FormatRequest(CLUSTER, ("kraft.version=1",), is_standalone=True))
    assert [endpoints for _, _, endpoints in voters_in(tmp_path / "m")] == [[("CONTROLLER", "c7.example", 9999)]]


def test_initial_controllers_are_voters_with_given_directories(tmp_path: Path) -> None:
    formatted(dynamic_of(tmp_path), FormatRequest(CLUSTER, initial_controllers=VOTERS))
    assert directory_id_in(tmp_path / "m") == DIRECTORY
    assert voters_in(tmp_path / "m") == [
        (7, DIRECTORY, [("CONTROLLER", "localhost", 9093)]),
        (8, "MvDxzVmcRsaTz33bUuRU6A", [("CONTROLLER", "::1", 9095)]),
    ]


@pytest.mark.parametrize(
    ("request_of", "kind"),
    [
        (FormatRequest(CLUSTER, has_no_initial_controllers=True), "metadata"),
        (FormatRequest(CLUSTER, is_standalone=True), "dynamic metadata voter"),
        (FormatRequest(CLUSTER, initial_controllers=VOTERS), "dynamic metadata voter"),
        (FormatRequest(CLUSTER, initial_controllers=f"8@c8:9093:{DIRECTORY}"), "dynamic metadata"),
    ],
)
def test_kind_of_the_metadata_directory_is_that_of_its_voters(
    tmp_path: Path, request_of: FormatRequest, kind: str
) -> None:
    plan = plan_format(dynamic_of(tmp_path), SystemDisk(), StandingClock(), SeededRandom(1), request_of)
    assert {path: plan.kind_of(path) for path in plan.properties} == {f"{tmp_path}/a": "data", f"{tmp_path}/m": kind}


@pytest.mark.parametrize(
    ("request_of", "message"),
    [
        (FormatRequest(CLUSTER), "--standalone, --initial-controllers or --no-initial-controllers"),
        (FormatRequest(CLUSTER, ("kraft.version=0",), is_standalone=True), "kraft.version is 1"),
        (FormatRequest(CLUSTER, initial_controllers=" , "), "names no controller"),
        (FormatRequest(CLUSTER, initial_controllers=f"7@localhost:65536:{DIRECTORY}"), "is not ID@HOST:PORT:DIR"),
        (FormatRequest(CLUSTER, initial_controllers="7@localhost:9093"), "is not ID@HOST:PORT:DIRECTORY_ID"),
        (FormatRequest(CLUSTER, initial_controllers=f"7@::1:9093:{DIRECTORY}"), "is not ID@HOST:PORT:DIRECTORY_ID"),
        (FormatRequest(CLUSTER, initial_controllers=f"7@h:1:{'A' * 22}"), "Kafka reserves the directory id"),
        (FormatRequest(CLUSTER, initial_controllers=f"{VOTERS},7@h:1:{OTHER}"), "node 7 is named twice"),
        (FormatRequest(CLUSTER, initial_controllers=f"{VOTERS},9@h:1:{DIRECTORY}"), "two nodes have the directory id"),
    ],
)  # fmt: skip
def test_wrong_voters_are_rejected_and_nothing_is_written(
    tmp_path: Path, request_of: FormatRequest, message: str
) -> None:
    assert message in rejected(dynamic_of(tmp_path), request_of)
    assert list(tmp_path.iterdir()) == []


def test_broker_is_neither_standalone_nor_an_initial_controller(tmp_path: Path) -> None:
    config = dynamic_of(tmp_path, process_roles="broker", listeners="PLAINTEXT://:9092")
    assert "process.roles has no controller" in rejected(config, FormatRequest(CLUSTER, is_standalone=True))
    assert "names node 7" in rejected(config, FormatRequest(CLUSTER, initial_controllers=VOTERS))


def test_interrupted_format_of_a_voter_can_be_repeated(tmp_path: Path) -> None:
    config, request = dynamic_of(tmp_path), FormatRequest(CLUSTER, is_standalone=True)
    formatted(config, request)
    (tmp_path / "m" / "meta.properties").unlink()
    again = request._replace(ignore_formatted=True)
    assert formatted(config, again) == [f"{tmp_path}/m"]
    assert [each for _, each, _ in voters_in(tmp_path / "m")] == [directory_id_in(tmp_path / "m")]
    (tmp_path / "m" / "meta.properties").unlink()
    (tmp_path / "m" / "__cluster_metadata-0" / "quorum-state").touch()
    assert "has a metadata log" in rejected(config, again)
