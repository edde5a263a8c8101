"""`odradek import`, without its arguments and its report: from folders of Apache Kafka to one of Odradek."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.migration.plan import ImportPlan, Options, PartitionPlan, make_plan
from odradek.broker.migration.source import (
    ImportFailure,
    Signs,
    SourceCluster,
    SourceFolder,
    cluster_of_directories,
    hold_folders,
    kraft_cluster,
    read_folders,
    signs_of_use,
)
from odradek.broker.migration.writing import (
    Progress,
    check_empty,
    finish,
    lock_targets,
    mark,
    write_partition,
    write_small_files,
    write_store,
)
from odradek.broker.migration.zookeeper import Ensemble, zookeeper_cluster
from odradek.log.directories.ownership import METADATA_FILE
from odradek.ports.disk import Disk
from odradek.ports.foreign_files import are_on_one_disk, real_path
from odradek.ports.randomness import Random

_SPARE_BYTES = 64 * 1024 * 1024
"""Left free beside what is copied, for the metadata and the first records."""


class Import:
    """One import: `plan` reads, `write` writes; `close` lets brokers start on the source again."""

    def __init__(self, disk: Disk, random: Random, sources: Sequence[str], targets: Sequence[str]) -> None:
        """Folders as absolute or relative paths. Raises ImportFailure when they cannot go together."""
        self._disk = disk
        self._random = random
        self._sources = [path.rstrip("/") or "/" for path in sources]
        self._targets = [path.rstrip("/") or "/" for path in targets]
        self._held = ExitStack()
        self._folders: list[SourceFolder] = []
        self._signs: list[Signs] = []
        self.copied_bytes = 0
        """Bytes that `write` has copied, those of links that the file system could not make among them."""
        self._check_paths()

    def _check_paths(self) -> None:
        if len({real_path(path) for path in self._sources}) < len(self._sources):
            raise ImportFailure(f"a folder is named twice: {', '.join(self._sources)}")
        if len(self._targets) not in (1, len(self._sources)):
            raise ImportFailure(
                f"{len(self._sources)} folders cannot go to {len(self._targets)}: name one target, or one for each"
            )
        for target in self._targets:
            for source in self._sources:
                here, there = real_path(target), real_path(source)
                if here == there or here.startswith(there + "/") or there.startswith(here + "/"):
                    raise ImportFailure(f"{target} and {source} lie in each other: the target must be another folder")

    async def plan(self, options: Options, zookeeper: Ensemble | None = None) -> ImportPlan:
        """Read the source and look at the target. Raises ImportFailure, StoreError, OSError."""
        for lock in hold_folders(self._sources):
            self._held.callback(lock.release)
        self._signs = [signs_of_use(self._disk, path) for path in self._sources]
        self._folders = read_folders(self._disk, self._sources)
        cluster = await self._cluster(zookeeper)
        check_empty(self._disk, self._targets)
        config = BrokerConfig({})
        return make_plan(self._disk, self._random, self._folders, cluster, options, config.value)

    async def _cluster(self, zookeeper: Ensemble | None) -> SourceCluster:
        kraft = kraft_cluster(self._disk, self._folders)
        if kraft is not None:
            if zookeeper is not None:
                raise ImportFailure("--zookeeper: the folders are of KRaft, whose metadata they hold themselves")
            return kraft
        if self._folders[0].meta.version:
            raise ImportFailure(
                f"no __cluster_metadata-0 in {', '.join(self._sources)}: name the folder of metadata.log.dir as well"
            )
        if zookeeper is not None:
            return await zookeeper_cluster(zookeeper, self._disk, self._folders)
        return cluster_of_directories(self._folders)

    def target_of(self, folder: int) -> str:
        """The target of what lies in the source folder of that number."""
        return self._targets[folder if len(self._targets) > 1 else 0]

    def check_space(self, plan: ImportPlan) -> None:
        """Raise ImportFailure when the copies do not fit. Links are counted as copies where they are impossible.

        Raises OSError.
        """
        for target in dict.fromkeys(self._targets):
            links = [are_on_one_disk(folder.path, target) for folder in self._folders]
            needed = _SPARE_BYTES + sum(
                file.size
                for each in plan.partitions
                if self.target_of(each.folder) == target
                for file in each.files
                if not (file.linked and links[each.folder])
            )
            free, _ = self._disk.free_bytes(target)
            if needed > free:
                raise ImportFailure(f"{target}: {needed} bytes are to be copied, and {free} are free")

    async def write(self, plan: ImportPlan, progress: Progress = lambda _: None) -> None:
        """Carry out the plan. Raises ImportFailure before anything is written, StoreError, OSError."""
        disk = self._disk
        targets = list(dict.fromkeys(self._targets))
        with ExitStack() as locks:
            for lock in lock_targets(disk, targets):
                locks.callback(lock.release)
            self.check_space(plan)
            by_target: dict[str, list[PartitionPlan]] = {target: [] for target in targets}
            for each in plan.partitions:
                by_target[self.target_of(each.folder)].append(each)
            mark(disk, self._sources, by_target)
            for target, plans in by_target.items():
                for each in plans:
                    topic_id = plan.image.topics[each.source.topic].id
                    self.copied_bytes += write_partition(disk, target, each, topic_id)
                    progress(each)
                    # SIGINT cancels this task, which takes effect between two partitions.
                    await asyncio.sleep(0)
            await write_store(disk, f"{targets[0]}/{METADATA_FILE}", plan)
            for target, plans in by_target.items():
                held = {(each.source.topic, each.source.number): each.folder for each in plans}
                write_small_files(disk, target, plan, self._folders, held, self._random)
            self._check_unused()
            # The first one last: it has the metadata, and a start that finds a marker anywhere refuses.
            for target in reversed(targets):
                finish(disk, target)

    def _check_unused(self) -> None:
        """Raise ImportFailure where a broker has started on a source since `plan`, which a lock may not prevent.

        A clean stop of Apache Kafka removes its lock file, and the import makes no other. Raises OSError.
        """
        for path, before in zip(self._sources, self._signs, strict=True):
            if signs_of_use(self._disk, path) != before:
                raise ImportFailure(
                    f"{path}: a broker has used this folder since the import began: stop it, and repeat the import"
                )

    def close(self) -> None:
        """Let brokers start on the source again."""
        self._held.close()
