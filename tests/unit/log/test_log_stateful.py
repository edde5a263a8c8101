"""A log against a list of batches: whatever is appended, read, rolled, truncated, closed, or torn by a crash."""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from odradek.log.append import Origin
from odradek.log.config import LogConfig
from odradek.records.batch import verify_crc
from odradek.wire.errors import ErrorCode, KafkaError
from tests.unit.log.support import NOW, LackingDisk, batch, log_environment, open_log, parse_header, put


@dataclass
class Written:
    base: int
    data: bytes
    timestamps: list[int]
    epoch: int

    @property
    def last(self) -> int:
        return self.base + len(self.timestamps) - 1


Lack = tuple[int, int]
LACK: st.SearchStrategy[Lack] = st.tuples(st.integers(0, 7), st.sampled_from([errno.EMFILE, errno.EMFILE, errno.EIO]))


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.mkdtemp(prefix="odradek-log-")
        self.disk = LackingDisk()
        self.environment = log_environment(self.disk, open_files=3)
        self.config = LogConfig(segment_bytes=2500, index_interval_bytes=150, file_delete_delay_ms=0)
        self.log = open_log(self.directory, self.config, self.environment)
        self.written: list[Written] = []
        self.start = 0
        self.epoch = 0

    def teardown(self) -> None:
        self.environment.files.forget_directory(self.log.directory)
        shutil.rmtree(self.directory)

    @property
    def end(self) -> int:
        return self.log.end_offset

    def expected(self, offset: int, max_bytes: int, upper: int) -> list[bytes]:
        found: list[bytes] = []
        for written in self.written:
            if written.last < offset:
                continue
            size = sum(map(len, found)) + len(written.data)
            if written.last >= upper or (found and size > max_bytes):
                break
            found.append(written.data)
            if size > max_bytes:
                break
        return found

    @rule(
        deltas=st.lists(st.integers(-50, 50), min_size=1, max_size=4),
        size=st.integers(0, 400),
        codec=st.sampled_from([0, 0, 0, 4]),
    )
    def append(self, deltas: list[int], size: int, codec: int) -> None:
        timestamps = [NOW + delta for delta in deltas]
        data = batch(len(deltas), value=b"v" * size, timestamps=timestamps, codec=codec)
        before = self.end
        result = put(self.log, data, epoch=self.epoch)
        assert (result.first_offset, result.last_offset) == (before, before + len(deltas) - 1)
        self.written.append(Written(before, bytes(data), timestamps, self.epoch))

    @rule(count=st.integers(1, 3))
    def replicate(self, count: int) -> None:
        parts = []
        offset = self.end
        for _ in range(count):
            data = bytes(batch(2, value=b"replica", base_offset=offset, partition_leader_epoch=self.epoch))
            self.written.append(Written(offset, data, [NOW, NOW], self.epoch))
            parts.append(data)
            offset += 2
        put(self.log, memoryview(bytearray().join(parts)), epoch=self.epoch, origin=Origin.REPLICATION)

    @rule()
    def next_epoch(self) -> None:
        self.epoch += 1

    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end), "offset")
        upper = data.draw(st.integers(self.start, self.end), "upper")
        max_bytes = data.draw(st.integers(0, 3000), "max_bytes")
        read = self.log.reader.read(offset, max_bytes, upper_offset=upper)
        found = b"".join(part.file.read(part.position, part.size) for part in read.ranges)
        expected = self.expected(offset, max_bytes, upper) if offset < upper else []
        assert found == b"".join(expected)
        assert read.size == len(found)
        if expected:
            assert read.next_offset == next(w.last for w in self.written if w.data == expected[-1]) + 1

    @rule(max_bytes=st.integers(1, 2000))
    def read_through(self, max_bytes: int) -> None:
        offset = self.start
        found: list[bytes] = []
        while offset < self.end:
            read = self.log.reader.read(offset, max_bytes, upper_offset=self.end)
            found.extend(part.file.read(part.position, part.size) for part in read.ranges)
            assert read.next_offset > offset
            offset = read.next_offset
        assert b"".join(found) == b"".join(w.data for w in self.written if w.last >= self.start)

    @rule(delta=st.integers(-60, 60), data=st.data())
    def find_timestamp(self, delta: int, data: st.DataObject) -> None:
        upper = data.draw(st.integers(self.start, self.end), "upper")
        records = [
            (w.base + index, timestamp, w.epoch)
            for w in self.written
            for index, timestamp in enumerate(w.timestamps)
            if w.base + index >= self.start
        ]
        first = next((record for record in records if record[1] >= NOW + delta), None)
        assert self.log.reader.find_timestamp(NOW + delta, upper) == (first if first and first[0] < upper else None)
        latest = max((record for record in records), key=lambda record: (record[1], -record[0]), default=None)
        assert self.log.reader.max_timestamp(self.end) == latest

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def flush(self) -> None:
        self.log.durability.flush()
        assert self.log.durability.recovery_point == self.end

    @rule()
    def release(self) -> None:
        self.log.release()
        assert len(self.environment.files) == 0

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end), "offset")
        removed = [w for w in self.written if w.last >= offset]
        self.log.truncate_to(offset)
        self.written = [w for w in self.written if w.last < offset]
        assert self.end == (removed[0].base if removed else offset)
        self.start = min(self.start, self.end)
        self.epoch += 1

    @rule(data=st.data())
    def advance_start(self, data: st.DataObject) -> None:
        self.start = data.draw(st.integers(self.start, self.end), "start")
        self.log.advance_log_start(self.start)
        self.log.delete_old_segments(NOW, self.end)
        self.written = [w for w in self.written if w.last >= self.log.segments[0].base_offset]

    @rule()
    def reopen(self) -> None:
        self.log.close()
        self.log = open_log(self.directory, self.config, self.environment, clean=True, log_start_offset=self.start)

    @precondition(lambda self: self.written)
    @rule(cut=st.integers(0, 600), garbage=st.binary(max_size=80))
    def crash(self, cut: int, garbage: bytes) -> None:
        """Everything synced stays; of the rest, an end is lost and garbage may follow."""
        durable = self.log.durability.recovery_point
        self.environment.files.forget_directory(self.log.directory)
        last = self.log.segments[-1]
        floor = sum(len(w.data) for w in self.written if w.base >= last.base_offset and w.last < durable)
        size = max(floor, last.size - cut)
        with open(last.path, "r+b") as file:
            file.truncate(size)
            file.seek(size)
            file.write(garbage)
        position, kept = 0, []
        for written in self.written:
            if written.base >= last.base_offset:
                position += len(written.data)
                if position > size and (
                    size + len(garbage) < position or not self._restores(written, position, size, garbage)
                ):
                    break
            kept.append(written)
        if kept and kept[-1].last + 1 < self.start:
            # More was lost than DeleteRecords had left: the log restarts at its stored start offset.
            kept = []
        self.written = kept
        self.log = open_log(
            self.directory, self.config, self.environment, recovery_point=durable, log_start_offset=self.start
        )
        assert self.end == (kept[-1].last + 1 if kept else self.log.segments[-1].base_offset)
        self.start = self.log.log_start_offset
        self.epoch += 1

    @staticmethod
    def _restores(written: Written, position: int, size: int, garbage: bytes) -> bool:
        """Whether the garbage happens to be the very bytes that were cut off."""
        missing = written.data[len(written.data) - (position - size) :]
        return garbage.startswith(missing)

    def lacking(self, lack: Lack, change: Callable[[], object]) -> bool:
        """Whether the change was made with so many descriptors left, or calls until the disk fails. It may cost the
        log its use until a restart; then it was made or was not.
        """
        durable, end = self.log.durability.recovery_point, self.end
        self.disk.left, self.disk.errno = lack
        try:
            change()
        except KafkaError as error:
            if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
                raise
        else:
            return True
        finally:
            self.disk.left = None
        if not self.log.is_offline:
            assert self.end == end
            return False
        self.environment.files.forget_directory(self.log.directory)
        self.log = open_log(
            self.directory, self.config, self.environment, recovery_point=durable, log_start_offset=self.start
        )
        return self.end != end

    @rule(lack=LACK, count=st.integers(1, 3), size=st.integers(0, 400))
    def append_lacking(self, lack: Lack, count: int, size: int) -> None:
        data = batch(count, value=b"v" * size)
        before = self.end
        if self.lacking(lack, lambda: put(self.log, data, epoch=self.epoch)):
            self.written.append(Written(before, bytes(data), [NOW] * count, self.epoch))

    @rule(lack=LACK)
    def roll_lacking(self, lack: Lack) -> None:
        self.lacking(lack, self.log.roll)

    @rule(lack=LACK)
    def flush_lacking(self, lack: Lack) -> None:
        self.lacking(lack, self.log.durability.flush)

    @rule(lack=LACK, data=st.data())
    def truncate_lacking(self, lack: Lack, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end), "offset")
        kept = [w for w in self.written if w.last < offset]
        if self.lacking(lack, lambda: self.log.truncate_to(offset)):
            # Where the disk failed in the middle of it, some of the end may be left, and nothing is missing before it.
            self.written = kept + [w for w in self.written[len(kept) :] if w.last < self.end]
            self.start = min(self.start, self.end)
            self.epoch += 1

    @rule(lack=LACK, data=st.data())
    def advance_start_lacking(self, lack: Lack, data: st.DataObject) -> None:
        start = data.draw(st.integers(self.start, self.end), "start")

        def change() -> None:
            self.log.advance_log_start(start)
            self.start = self.log.log_start_offset
            self.log.delete_old_segments(NOW, self.end)

        self.lacking(lack, change)
        self.written = [w for w in self.written if w.last >= self.log.segments[0].base_offset]

    @rule(lack=LACK)
    def read_lacking(self, lack: Lack) -> None:
        self.lacking(lack, lambda: self.log.reader.read(self.start, 3000, upper_offset=self.end))

    @invariant()
    def agrees(self) -> None:
        log = self.log
        assert log.log_start_offset == self.start
        found = [bytes(data) for data in log.reader.read_batches(self.start, self.end)]
        assert found == [w.data for w in self.written if w.last >= self.start]
        for data in found:
            verify_crc(memoryview(data), 0, parse_header(data))
        for epoch, start_offset in log.history.leader_epochs.entries():
            first = next((w for w in self.written if w.base >= start_offset), None)
            assert first is None or first.epoch >= epoch


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(max_examples=120, stateful_step_count=30, deadline=None)
