"""The files of a broker that does not run, for the tools that print and check them."""

from odradek.log.dump import DumpOptions, UnknownFile, as_text, dump
from odradek.log.verification import Finding, partition_directories, verify_checkpoints, verify_partition

__all__ = [
    "DumpOptions",
    "Finding",
    "UnknownFile",
    "as_text",
    "dump",
    "partition_directories",
    "verify_checkpoints",
    "verify_partition",
]
