"""The one error of this package, and its refinements.

A caller that only wants to know "these bytes are no good" catches `CorruptRecords`; a broker that has to answer with a
precise error code distinguishes the subclasses.
"""


class CorruptRecords(ValueError):
    """Bytes that are not a well-formed record batch (CORRUPT_MESSAGE); says what is wrong and where."""


class UnsupportedMagic(CorruptRecords):
    """A message set of magic 0 or 1 (Kafka before 0.11), or an unknown one (UNSUPPORTED_FOR_MESSAGE_FORMAT)."""


class InvalidRecords(CorruptRecords):
    """A well-formed batch that a client may not append (INVALID_RECORD)."""


class TooLargeRecords(CorruptRecords):
    """Compressed records that take more bytes than the caller allows (MESSAGE_TOO_LARGE)."""


class RecordTooLarge(ValueError):
    """One record alone does not fit in the batch size that the caller allows (MESSAGE_TOO_LARGE)."""
