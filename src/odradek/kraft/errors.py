"""What is wrong with a file or a record of KRaft."""


class CorruptMetadata(ValueError):
    """A metadata log, a checkpoint or `quorum-state` holds what this version cannot read; the text says where."""


class UnknownMetadata(CorruptMetadata):
    """A record is sound and names something that this version does not know; the text says what."""
