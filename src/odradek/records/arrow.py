"""Record batches straight to Arrow columns and back; needs numpy and pyarrow (the `spark` extra).

Nothing else of the package imports this module or what it names, so that brokers and plain clients start without them.
"""

from odradek.records.arrow_decode import SCHEMA, SCHEMA_WITH_HEADERS, decode_to_arrow
from odradek.records.arrow_encode import encode_from_arrow

__all__ = ["SCHEMA", "SCHEMA_WITH_HEADERS", "decode_to_arrow", "encode_from_arrow"]
