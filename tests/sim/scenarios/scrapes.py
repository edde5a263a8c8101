"""The metrics of a simulated broker that follow from what its clients did, and not from the machine or the time."""

from __future__ import annotations

import asyncio
import re
from typing import Final

from odradek.client.surroundings import surroundings
from odradek.ports.network import WOULD_BLOCK

PORT: Final = 9644
_OF_THE_MACHINE: Final = re.compile(
    r"process_|.*(seconds|_ms|timems|linux_disk|software|idle|_ratio|cpu|build_info|_hold)"
)


async def scraped(host: str) -> list[str]:
    """The samples of `/metrics`, which the broker serves with `odradek.http.listener: :9644`, without zeros."""
    stream = await surroundings().network.connect(host, PORT, 10.0)
    stream.send(b"GET /metrics HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", False)
    answer, buffer = bytearray(), memoryview(bytearray(65_536))
    async with asyncio.timeout(30):
        while (size := stream.receive_into(buffer)) != 0:
            if size == WOULD_BLOCK:
                await asyncio.sleep(0.01)
            else:
                answer += buffer[:size]
    stream.close()
    lines = answer.partition(b"\r\n\r\n")[2].decode().splitlines()
    return sorted(line for line in lines if line and not line.startswith("#") and _is_told(line))


def _is_told(line: str) -> bool:
    name = re.split(r"[{ ]", line, maxsplit=1)[0]
    return not line.endswith((" 0", " 0.0")) and _OF_THE_MACHINE.match(name) is None
