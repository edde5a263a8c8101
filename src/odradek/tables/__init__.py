"""Topics as tables: each topic continuously written into a Delta or an Iceberg table, every record once.

`docs/TABLES.md` explains it. `odradek tables` is the command.
"""
