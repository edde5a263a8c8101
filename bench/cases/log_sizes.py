"""How many bytes a topic has on disk, by DescribeLogDirs: what cases that watch compaction ask for."""

import socket

from bench.servers import Running
from odradek.wire.headers import encode_request_header, parse_response_header
from odradek.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

VERSION = 4


def topic_bytes(broker: Running, topic: str) -> int:
    out = bytearray(4)
    encode_request_header(out, DescribeLogDirsRequest.API_KEY, VERSION, 1, "bench")
    DescribeLogDirsRequest(None).encode(out, VERSION)
    out[0:4] = (len(out) - 4).to_bytes(4, "big")
    with socket.create_connection(broker.address(), 10) as connection:
        connection.sendall(out)
        with connection.makefile("rb") as stream:
            frame = memoryview(stream.read(int.from_bytes(stream.read(4), "big")))
    _, position = parse_response_header(frame, DescribeLogDirsRequest.API_KEY, VERSION)
    response, _ = DescribeLogDirsResponse.decode(frame, position, VERSION)
    return sum(
        partition.partition_size
        for directory in response.results
        for found in directory.topics
        if found.name == topic
        for partition in found.partitions
    )
