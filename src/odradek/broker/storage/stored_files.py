"""The files of a broker that does not run, for the tools that print and check them."""

from odradek.broker.storage.stored_metadata_log import tree_of_directory, tree_of_snapshot
from odradek.kraft.errors import CorruptMetadata
from odradek.log.directories.checkpoint_formats import (
    LOCK,
    META_PROPERTIES,
    CorruptCheckpoint,
    decode_uuid,
    encode_uuid,
    parse_meta_properties,
)
from odradek.log.directories.ownership import METADATA_FILE
from odradek.log.inspection.dump import DumpOptions, UnknownFile, as_metadata, as_text, dump
from odradek.log.inspection.verification import (
    Finding,
    log_directories,
    partition_directories,
    verify_checkpoints,
    verify_partition,
)
from odradek.metadata.kraft.image_tree import Tree

__all__ = [
    "LOCK",
    "METADATA_FILE",
    "META_PROPERTIES",
    "CorruptCheckpoint",
    "CorruptMetadata",
    "DumpOptions",
    "Finding",
    "Tree",
    "UnknownFile",
    "as_metadata",
    "as_text",
    "decode_uuid",
    "dump",
    "encode_uuid",
    "log_directories",
    "parse_meta_properties",
    "partition_directories",
    "tree_of_directory",
    "tree_of_snapshot",
    "verify_checkpoints",
    "verify_partition",
]
