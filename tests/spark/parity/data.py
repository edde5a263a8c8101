"""The topics that the parity cases read: what lies in each, made once per broker, the same on every broker."""

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from random import Random
from string import Template
from typing import Final, NamedTuple

from odradek.client.blocking import Blocking
from odradek.client.producer.producer import Producer
from odradek.client.producer.transactions import TransactionalProducer
from tests.spark.support import Record, Topics

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS: Final = 64
ROWS: Final = 20_000
COMPACTED_WAIT_S: Final = 90
MARKERS_WAIT_S: Final = 60

BROKER_SETTINGS: Final[Mapping[str, object]] = {
    "log.cleaner.backoff.ms": 200,
    # Apache Kafka waits a minute before it deletes anything
    "file.delete.delay.ms": 1000,
}


class Filler:
    """Makes topics whose names begin with a word of this filler's own, and fills them in every way that clients can."""

    def __init__(self, topics: Topics, blocking: Blocking, prefix: str) -> None:
        self.topics = topics
        self.prefix = prefix
        self._blocking = blocking
        self._producers: dict[str, Producer] = {}
        self._open: list[TransactionalProducer] = []

    def name(self, short: str) -> str:
        """A topic's name on the broker."""
        return f"{self.prefix}-{short}"

    def renamed(self) -> "Filler":
        """A filler of other topics on the same broker, by the same clients."""
        other = Filler(self.topics, self._blocking, f"parity-{uuid.uuid4().hex[:8]}")
        other._producers, other._open = self._producers, self._open
        return other

    def expand(self, text: str) -> str:
        """The text with `$name` and `${name}` as the names of topics, `$$` as a dollar."""
        return Template(text).substitute(_Names(self.name))

    def send(self, short: str, records: Iterable[Record], codec: str = "none") -> None:
        """Write records, compressed with a codec, and wait until they are acknowledged."""
        if codec not in self._producers:
            options = {"bootstrap_servers": self.topics.bootstrap, "compression_type": codec, "linger_ms": 5}
            self._producers[codec] = self._blocking.open(Producer(**options))  # type: ignore[arg-type]
        self._blocking.run(_send(self._producers[codec], self.name(short), records))

    def transaction(self, short: str, records: Iterable[Record], end: str) -> None:
        """Write records in one transaction that ends with `commit` or `abort`, or stays `open`."""
        written = list(records)
        producer: TransactionalProducer = TransactionalProducer(
            bootstrap_servers=self.topics.bootstrap, transactional_id=f"{self.name(short)}-{len(self._open)}-{end}"
        )

        async def write() -> None:
            await producer.start()
            await producer.initialize()
            producer.begin()
            await _send(producer, self.name(short), written)
            if end == "commit":
                await producer.commit()
            elif end == "abort":
                await producer.abort()
            if end != "open":
                await producer.close()

        self._blocking.run(write())
        if end == "open":
            self._open.append(producer)
        else:
            self.wait_for_markers(self.name(short), 1 + max(each.partition for each in written))

    def wait_for_markers(self, topic: str, partitions: int) -> None:
        """Brokers may answer EndTxn before the markers are written: later records would lie before or behind them."""
        deadline = time.monotonic() + MARKERS_WAIT_S
        while self.topics.ends(topic, partitions, committed=True) != self.topics.ends(topic, partitions):
            assert time.monotonic() < deadline, f"a transaction in {topic} has no end"
            time.sleep(0.02)

    def delete_records(self, short: str, partition: int, before: int) -> None:
        self.topics.delete_records(self.name(short), partition, before)

    def wait_until_compacted(self, short: str, left: int) -> None:
        """Wait until the topic of one partition has no more than so many records."""
        deadline = time.monotonic() + COMPACTED_WAIT_S
        while (found := len(self.topics.read(self.name(short), 1))) > left:
            assert time.monotonic() < deadline, f"{self.name(short)} still has {found} records, not {left}"
            time.sleep(0.2)

    def close(self) -> None:
        """Close what is open; unfinished transactions are aborted."""
        for each in self._open:
            self._blocking.run(each.close())


class _Names(Mapping[str, str]):
    """Every word that can stand behind a dollar, as the name of a topic."""

    def __init__(self, name: Callable[[str], str]) -> None:
        self._name = name

    def __getitem__(self, short: str) -> str:
        return self._name(short)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


async def _send(producer: Producer | TransactionalProducer, topic: str, records: Iterable[Record]) -> None:
    for number, each in enumerate(records):
        await producer.send(topic, each.value, each.key, each.headers, each.partition, timestamp_ms=each.timestamp_ms)
        if number % 2000 == 1999:
            await producer.flush()
    await producer.flush()


class Dataset(NamedTuple):
    """A topic and how it gets its content."""

    partitions: int
    fill: Callable[[Filler, str], None]
    configs: Mapping[str, str] = {}


def numbered(count: int, partition: int = 0, first: int = 0, step_ms: int = 1000) -> Iterator[Record]:
    """Records whose keys and values are their numbers, one second apart."""
    for n in range(first, first + count):
        yield Record(b"%d" % n, b"k%d" % n, partition=partition, timestamp_ms=step_ms * (n + 1))


def spread(count: int, partitions: int, size: int = 0) -> Iterator[Record]:
    """Records over all partitions in turn; values are random bytes and text, so that codecs have something to do."""
    random = Random(count)
    for n in range(count):
        value = b"%d" % n if not size else (random.randbytes(size // 2) + b"text " * size)[:size]
        yield Record(value, b"k%d" % (n % 997), partition=n % partitions, timestamp_ms=1_600_000_000_000 + n)


def _wide(codec: str) -> Callable[[Filler, str], None]:
    return lambda filler, name: filler.send(name, spread(ROWS, PARTITIONS, 1024), codec)


def _mixed(filler: Filler, name: str) -> None:
    for number, codec in enumerate(CODECS):
        filler.send(name, numbered(40, first=40 * number), codec)


def _headers(filler: Filler, name: str) -> None:
    kinds: list[tuple[tuple[str, bytes | None], ...]] = [
        (("a", b"1"),),
        (),
        (("a", b"1"), ("a", b"2"), ("a", None)),
        (("", b"empty key"), ("empty", b""), ("ü €", b"\xff\x00")),
        tuple((f"h{n}", b"%d" % n) for n in range(40)),
    ]
    filler.send(name, [Record(b"%d" % n, None, kinds[n % 5], n % 2, 1000 + n) for n in range(50)])
    filler.send(name, [Record(b"plain %d" % n, b"k", (), n % 2, 2000 + n) for n in range(10)], "zstd")


def _nulls(filler: Filler, name: str) -> None:
    pairs = [(b"k", b"v"), (b"k", None), (None, b"v"), (None, None), (b"", b""), (b"\x00\xff", b"\xfe"), (b"k", b"")]
    filler.send(name, [Record(v, k, partition=n % 2, timestamp_ms=n) for n, (k, v) in enumerate(pairs * 4)])


def _times(filler: Filler, name: str) -> None:
    """Partition 0 goes up by seconds, 1 goes up and down, 2 has one record, 3 none."""
    filler.send(name, numbered(20))
    jumps = (5000, 1000, 9000, 3000, 15_000, 2000, 15_000, 8000)
    filler.send(name, [Record(b"j", b"%d" % n, partition=1, timestamp_ms=at) for n, at in enumerate(jumps)])
    filler.send(name, [Record(b"one", b"k", partition=2, timestamp_ms=7000)])
    filler.send(name, [Record(b"odd", b"k", partition=0, timestamp_ms=at) for at in (0, 253_402_300_799_999)])


def _transactions(filler: Filler, name: str) -> None:
    """Committed and aborted records in turn, plain ones between; partition 1 ends with 200 that were aborted."""
    for round_ in range(4):
        first = 100 * round_
        filler.transaction(name, numbered(10, first=first), "commit")
        filler.transaction(name, [*numbered(15, first=first + 10), *numbered(5, 1, first)], "abort")
        filler.send(name, numbered(5, first=first + 25))
        filler.send(name, numbered(5, 1, first + 50), "zstd")
    filler.transaction(name, numbered(200, 1, 1000), "abort")


def _unfinished(filler: Filler, name: str) -> None:
    """Partition 0 has an open transaction behind 10 records, and 10 plain ones behind that."""
    filler.send(name, [*numbered(10), *numbered(10, 1)])
    filler.transaction(name, numbered(10, first=10), "open")
    filler.send(name, numbered(10, first=20))


def _compacted(filler: Filler, name: str) -> None:
    """200 records of 5 keys, and a tombstone; a later one that rolls the segment. Of the first ones 5 are left."""
    records = [Record(b"%d" % n, b"k%d" % (n % 5), timestamp_ms=1000 + n) for n in range(200)]
    filler.send(name, [*records, Record(None, b"k1", timestamp_ms=1300)])
    filler.send(name, [Record(b"last", b"k9", timestamp_ms=1_000_000_000)])
    filler.wait_until_compacted(name, 6)


def _deleted(filler: Filler, name: str) -> None:
    """Of 100 records each: all there, half deleted, all deleted; and one partition that never had any."""
    for partition in range(3):
        filler.send(name, numbered(100, partition))
    filler.delete_records(name, 1, 50)
    filler.delete_records(name, 2, 100)


def _large(filler: Filler, name: str) -> None:
    """Values beyond every small limit of a fetch."""
    filler.send(
        name, [Record(b"%d" % n * size, b"k", (), n % 2, n) for n, size in enumerate((1, 900_000, 10, 300_000))]
    )


_FOREVER_MS: Final = "1000000000000000"

DATASETS: Final[Mapping[str, Dataset]] = {
    **{f"wide_{codec}": Dataset(PARTITIONS, _wide(codec)) for codec in CODECS},
    "mixed": Dataset(1, _mixed),
    "headers": Dataset(2, _headers),
    "nulls": Dataset(2, _nulls),
    "times": Dataset(4, _times, {"message.timestamp.after.max.ms": _FOREVER_MS}),
    "append": Dataset(2, lambda f, name: f.send(name, spread(40, 2)), {"message.timestamp.type": "LogAppendTime"}),
    "transactions": Dataset(2, _transactions),
    "unfinished": Dataset(2, _unfinished),
    "compacted": Dataset(
        1,
        _compacted,
        {
            "cleanup.policy": "compact",
            "segment.ms": "60000",
            "min.cleanable.dirty.ratio": "0.01",
            "delete.retention.ms": _FOREVER_MS,
        },
    ),
    "deleted": Dataset(4, _deleted),
    "large": Dataset(2, _large),
    "small": Dataset(2, lambda f, name: f.send(name, [*numbered(10), *numbered(7, 1)])),
    "other": Dataset(3, lambda f, name: f.send(name, spread(30, 3))),
    "empty": Dataset(2, lambda f, name: None),
}
"""The topics by their short names. Timestamps are given by the producer, so that two brokers hold the same rows."""


def make(filler: Filler, names: Iterable[str]) -> None:
    """Create and fill topics of the table."""
    for short in names:
        each = DATASETS[short]
        filler.topics.create(each.partitions, filler.name(short), **each.configs)
        each.fill(filler, short)
