"""Request and response headers, by hand: every frame passes here.

A frame here is what follows the four bytes of its size. Source: Kafka protocol guide; KIP-482 (header versions 2
and 1), KIP-511 (ApiVersions).
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error
from typing import Final

from odradek.wire.apis import APIS, request_header_version, response_header_version
from odradek.wire.primitives import NEVER_FLEXIBLE, DecodeError, skip_tags, write_nullable_string

_CONTROLLED_SHUTDOWN: Final = 7
_MAX_TAGS: Final = 64
"""Tagged fields of a request header, of which Kafka defines none."""
_unpack_head = Struct(">hhih").unpack_from
_pack_head = Struct(">hhi").pack
_pack_int32 = Struct(">i").pack
_unpack_int32 = Struct(">i").unpack_from
_flexible_from: Final = {key: api.flexible_from for key, api in APIS.items()}


def parse_request_header(frame: memoryview) -> tuple[int, int, int, str | None, int]:
    """(api key, api version, correlation id, client id, position of the body); raises DecodeError.

    Of a key or version that is unknown the position is that behind the client id: the request can still be refused by
    its correlation id. More than 64 tagged fields are an error before any of them is read.
    """
    try:
        key, version, correlation_id, length = _unpack_head(frame, 0)
        if key == _CONTROLLED_SHUTDOWN and version == 0:
            return key, version, correlation_id, None, 8
        if length < 0:
            if length != -1:
                raise DecodeError(f"client id of length {length}")
            client_id, position = None, 10
        else:
            position = 10 + length
            if position > len(frame):
                raise DecodeError(f"client id of length {length} with {len(frame) - 10} bytes left")
            client_id = str(frame[10:position], "utf-8")
        if version >= _flexible_from.get(key, NEVER_FLEXIBLE):
            if frame[position]:
                if frame[position] > _MAX_TAGS:
                    raise DecodeError(f"more than {_MAX_TAGS} tagged fields in the header")
                position = skip_tags(frame, position)
            else:
                position += 1
    except (struct_error, IndexError, UnicodeDecodeError) as fault:
        raise DecodeError(f"request header: {fault}") from fault
    return key, version, correlation_id, client_id, position


def encode_request_header(out: bytearray, key: int, version: int, correlation_id: int, client_id: str | None) -> None:
    """Append the header of a request; KeyError if the key is unknown."""
    header = request_header_version(key, version)
    out += _pack_head(key, version, correlation_id)
    if header >= 1:
        write_nullable_string(out, client_id)
    if header >= 2:
        out.append(0)


def parse_response_header(frame: memoryview, key: int, version: int) -> tuple[int, int]:
    """(correlation id, position of the body) of the answer to a request of `key` and `version`; raises DecodeError."""
    try:
        (correlation_id,) = _unpack_int32(frame, 0)
        position = 4
        if response_header_version(key, version):
            position = skip_tags(frame, 4)
    except (struct_error, IndexError) as fault:
        raise DecodeError(f"response header: {fault}") from fault
    return correlation_id, position


def encode_response_header(out: bytearray, key: int, version: int, correlation_id: int) -> None:
    """Append the header of a response; KeyError if the key is unknown."""
    out += _pack_int32(correlation_id)
    if response_header_version(key, version):
        out.append(0)
