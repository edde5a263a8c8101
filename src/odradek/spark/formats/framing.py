"""How a value says which schema it was written with: not at all, or in Confluent's wire format.

Where ids come from and go to is the business of a `Schemas`, such as `odradek.client.RegistrySchemas`.
"""

from odradek.client.framing import MAGIC, FixedSchemas, FramingError, Schemas, framed, unframed

__all__ = ["MAGIC", "FixedSchemas", "FramingError", "Schemas", "framed", "unframed"]
