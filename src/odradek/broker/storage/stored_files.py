"""The files of a broker that does not run, for the tools that print and check them."""

from odradek.log.directories.checkpoint_formats import encode_uuid
from odradek.log.directories.ownership import METADATA_FILE
from odradek.log.inspection.dump import DumpOptions, UnknownFile, as_metadata, as_text, dump
from odradek.log.inspection.verification import (
    Finding,
    log_directories,
    partition_directories,
    verify_checkpoints,
    verify_partition,
)

__all__ = [
    "METADATA_FILE",
    "DumpOptions",
    "Finding",
    "UnknownFile",
    "as_metadata",
    "as_text",
    "dump",
    "encode_uuid",
    "log_directories",
    "partition_directories",
    "verify_checkpoints",
    "verify_partition",
]
