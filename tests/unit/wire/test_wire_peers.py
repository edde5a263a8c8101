"""The codecs against two other implementations, both ways: ours is read by them, what they write is read by us."""

from __future__ import annotations

import dataclasses
import datetime as dt
import importlib
import io
import uuid
from random import Random
from typing import Any

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
import kafka.protocol.sasl
import pytest
from kafka.protocol.api_message import ApiMessage
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer

from odradek.wire.definitions import Field, Struct
from tests.unit.wire.samples import Case, cases, decoded, encoded, plausible

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


# --- kio: every message and version ---


def _kio_class(case: Case, version: int) -> Any:
    """kio's class for one version, None if it has none."""
    for suffix, kind in (("_request", "request"), ("_response", "response"), ("", "data"), ("", "header")):
        for module in (case.module, _snake(case.name)):
            path = f"kio.schema.{module.removesuffix(suffix)}.v{version}.{kind}"
            try:
                loaded = importlib.import_module(path)
            except ModuleNotFoundError:
                continue
            if hasattr(loaded, case.name):
                return getattr(loaded, case.name)
    return None


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


def _plain(value: Any) -> Any:
    """A value of kio's as we hold it."""
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, dt.timedelta):
        return round(value / dt.timedelta(milliseconds=1))
    if isinstance(value, dt.datetime):
        return round((value - EPOCH) / dt.timedelta(milliseconds=1))
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _same_as_kio(case: Case, shape: Struct, ours: Any, theirs: Any, version: int) -> None:
    fields = [field for field in shape.fields if version in field.versions]
    other = dataclasses.fields(theirs)
    assert len(fields) == len(other)
    # kio keeps the order of the definitions, so do we.
    for field, their_field in zip(fields, other, strict=True):
        our_value, their_value = getattr(ours, field.attribute), getattr(theirs, their_field.name)
        where = f"{shape.name}.{field.name}"
        if not field.is_struct:
            assert our_value == _plain(their_value), where
            continue
        inner = case.message.struct(field.element)
        if not field.array:
            our_value, their_value = [our_value], [their_value]
        assert len(our_value) == len(their_value), where
        for our_item, their_item in zip(our_value, their_value, strict=True):
            _same_as_kio(case, inner, our_item, their_item, version)


OWN_FIELDS = {"DefaultPrincipalData"}
"""Messages between our own brokers with a tagged field that Kafka does not have, which kio does not read over."""

KIO_CASES = [
    (case, version, kind)
    for case in cases()
    for version in case.versions
    if case.name not in OWN_FIELDS and (kind := _kio_class(case, version)) is not None
]
KIO = [pytest.param(*each, id=f"{each[0].name}-{each[1]}") for each in KIO_CASES]


REMOVED_FROM_KAFKA = {"LeaderAndIsr", "StopReplica", "UpdateMetadata", "ControlledShutdown"}
"""Its ZooKeeper mode ended with 4.0; only our own brokers say this to each other."""
OWN = {"LeadershipLease", "LeadershipPromise"}
"""Kafka has no such messages."""


def test_kio_knows_every_request_and_response() -> None:
    known = {(case.name, version) for case, version, _ in KIO_CASES}
    lacking = {
        (case.name, version)
        for case in cases()
        if case.message.key is not None
        for version in case.versions
        if (case.name, version) not in known
    }
    assert {name.removesuffix("Request").removesuffix("Response") for name, _ in lacking} <= REMOVED_FROM_KAFKA | OWN
    assert len(schema_name_map) > 80


@pytest.mark.parametrize(("case", "version", "kind"), KIO)
def test_kio_reads_ours_and_we_read_kio(case: Case, version: int, kind: Any) -> None:
    for seed in range(3):
        ours = plausible(case, version, Random(f"{case.name} {version} {seed}"))
        data = encoded(ours, version)
        theirs, size = entity_reader(kind)(data, 0)
        assert size == len(data)
        _same_as_kio(case, case.message.root, ours, theirs, version)
        out = io.BytesIO()
        entity_writer(kind)(out, theirs)
        assert out.getvalue() == data
        assert decoded(case.kind, out.getvalue(), version) == ours


# --- kafka-python: the messages that it has ---


def _kafka_python_classes() -> dict[str, Any]:
    modules = (
        kafka.protocol.admin,
        kafka.protocol.consumer,
        kafka.protocol.metadata,
        kafka.protocol.producer,
        kafka.protocol.sasl,
    )
    return {
        name: kind
        for module in modules
        for name, kind in vars(module).items()
        if isinstance(kind, type) and issubclass(kind, ApiMessage) and name.endswith(("Request", "Response"))
    }


KAFKA_PYTHON = [
    pytest.param(case, version, kind, id=f"{case.name}-{version}")
    for case in cases()
    if (kind := _kafka_python_classes().get(case.name)) is not None
    for version in case.versions
    if version <= kind.max_version
]


def _same_as_kafka_python(case: Case, field: Field, ours: Any, theirs: Any, version: int) -> None:
    if field.is_struct:
        inner = case.message.struct(field.element)
        for our_item, their_item in zip(*([ours, theirs] if field.array else [[ours], [theirs]]), strict=True):
            for inner_field, their_value in _paired(inner, their_item, version):
                our_value = getattr(our_item, inner_field.attribute)
                _same_as_kafka_python(case, inner_field, our_value, their_value, version)
    else:
        theirs = theirs.bytes if isinstance(theirs, uuid.UUID) else theirs
        if field.element == "uuid" and field.array:
            theirs = [item.bytes for item in theirs]
        if isinstance(theirs, set):  # authorized operations, as bits
            theirs = sum(1 << bit for bit in theirs)
        assert ours == theirs, field.name


def _paired(shape: Struct, theirs: Any, version: int) -> list[tuple[Field, Any]]:
    fields = [field for field in shape.fields if version in field.versions]
    names = [field.name for field in theirs._struct._fields if field.for_version_q(version)]
    assert len(fields) == len(names)
    return [(field, getattr(theirs, name)) for field, name in zip(fields, names, strict=True)]


def test_kafka_python_has_many_messages() -> None:
    assert len(KAFKA_PYTHON) > 300


@pytest.mark.parametrize(("case", "version", "kind"), KAFKA_PYTHON)
def test_kafka_python_reads_ours_and_we_read_kafka_python(case: Case, version: int, kind: Any) -> None:
    for seed in range(3):
        ours = plausible(case, version, Random(f"{case.name} {version} {seed} kafka-python"))
        if case.name == "ApiVersionsResponse":
            ours.error_code = 0  # an error comes in version 0, they know
        data = encoded(ours, version)
        theirs = kind.decode(data, version=version)
        theirs._header = None  # their decoder leaves it unset, their encoder asks for it
        for field, value in _paired(case.message.root, theirs, version):
            _same_as_kafka_python(case, field, getattr(ours, field.attribute), value, version)
        assert decoded(case.kind, bytes(theirs.encode(version=version)), version) == ours
