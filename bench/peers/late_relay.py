"""A relay before a broker that hands on its answers a little later.

librdkafka reports a failed handshake as a transport error where the broker's answer is there before librdkafka first
polls its socket (`rd_kafka_transport_ssl_connect`), and its test 0097 fails then: a broker on the same machine can be
that fast.
"""

import asyncio
import threading
from typing import Self

_DELAY_SECONDS = 0.01


class LateRelay:
    """Connections to `port`, a free one of 127.0.0.1, are connections to the broker."""

    def __init__(self, broker_port: int) -> None:
        self._broker_port = broker_port
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="relay", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._relay, "127.0.0.1", 0), self._loop
        ).result()
        self.port = server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, requests = await asyncio.open_connection("127.0.0.1", self._broker_port)
        await asyncio.gather(_copy(reader, requests, 0), _copy(answers, writer, _DELAY_SECONDS))


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter, delay_seconds: float) -> None:
    try:
        while data := await source.read(65_536):
            await asyncio.sleep(delay_seconds)
            target.write(data)
            await target.drain()
    except ConnectionError:
        pass  # the other direction ends with it
    finally:
        target.close()
