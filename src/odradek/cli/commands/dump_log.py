"""`odradek dump-log --files F,…`: the contents of log files in the form of Apache's DumpLogSegments."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from odradek.broker.storage.stored_files import DumpOptions, UnknownFile, as_metadata, as_text, dump
from odradek.cli.arguments.errors import CommandError
from odradek.cli.arguments.examples import add_examples
from odradek.cli.arguments.options import positive
from odradek.client.reports.stored_records import decode_offsets_record, decode_transaction_record
from odradek.ports.disk import SystemDisk

ENDS_WITH_ITS_READER: Final = True
"""See `odradek.cli.main.execute`."""
EXAMPLES: Final = """
# print a segment with its records
odradek dump-log --files data/greetings-0/00000000000000000000.log --print-data-log
# print KRaft's metadata log of a broker of Apache Kafka
odradek dump-log --files /var/lib/kafka/__cluster_metadata-0/00000000000000000000.log --cluster-metadata-decoder
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare Apache's options of DumpLogSegments."""
    parser.add_argument("--files", required=True, metavar="F,…", help="files to dump, separated by commas")
    parser.add_argument("--print-data-log", action="store_true", help="print keys and values")
    parser.add_argument("--deep-iteration", action="store_true", help="print records without their contents")
    parser.add_argument("--offsets-decoder", action="store_true", help="show records of __consumer_offsets as JSON")
    parser.add_argument(
        "--transaction-log-decoder", action="store_true", help="show records of __transaction_state as JSON"
    )
    parser.add_argument(
        "--cluster-metadata-decoder",
        action="store_true",
        help="show records of __cluster_metadata, in its log and in its .checkpoint files, as JSON",
    )
    parser.add_argument("--skip-record-metadata", action="store_true", help="print only keys and values of records")
    parser.add_argument("--index-sanity-check", action="store_true", help="check indexes instead of printing them")
    parser.add_argument("--verify-index-only", action="store_true", help="the same as --index-sanity-check")
    parser.add_argument(
        "--max-bytes", type=positive, default=sys.maxsize, metavar="N", help="read at most N bytes of a segment"
    )
    parser.add_argument("--max-message-size", type=int, help="accepted without effect, for scripts of Apache's tool")
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """Print each file; exit code 1 if one is damaged."""
    decoder = as_text if arguments.print_data_log else None
    if arguments.offsets_decoder:
        decoder = decode_offsets_record
    elif arguments.transaction_log_decoder:
        decoder = decode_transaction_record
    elif arguments.cluster_metadata_decoder:
        decoder = as_metadata
    options = DumpOptions(
        arguments.deep_iteration,
        decoder,
        arguments.skip_record_metadata,
        arguments.index_sanity_check or arguments.verify_index_only,
        arguments.max_bytes,
    )
    status = 0
    for path in arguments.files.split(","):
        print(f"Dumping {path}")
        try:
            for line in dump(SystemDisk(), path.strip(), options):
                print(line)
        except OSError as error:
            raise CommandError(f"{path}: {error.strerror or error}") from error
        except UnknownFile as error:
            raise CommandError(str(error)) from error
        except ValueError as error:
            print(f"{path}: {error}", file=sys.stderr)
            status = 1
    return status
