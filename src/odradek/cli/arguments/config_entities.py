"""What has configurations or quotas, as options name it and as results show it."""

from __future__ import annotations

import argparse
from typing import NamedTuple

from odradek.cli.arguments.profile_file import HIDDEN
from odradek.cli.terminal.output import DOCUMENTS, show_document


class Entity(NamedTuple):
    """type as `--entity-type` has it; name None is the default of all, "" all of the type (only to describe)."""

    type: str
    name: str | None

    def __str__(self) -> str:
        singular = self.type.removesuffix("s") if self.type != "client-metrics" else self.type
        return f"default config for {self.type} in the cluster" if self.name is None else f"{singular} {self.name}"


def show_altered(arguments: argparse.Namespace, entities: list[Entity], changes: dict[str, str | None]) -> None:
    """Print which entities were changed; a document also has the new values, without secrets."""
    if arguments.output in DOCUMENTS:
        from odradek.broker.configuration.setting_names import is_secret

        rows = [{"entity_type": each.type, "entity_name": each.name} for each in entities]
        shown = {name: HIDDEN if value and is_secret(name) else value for name, value in changes.items()}
        show_document({"altered": rows, "configs": shown}, arguments.output)
        return
    for each in entities:
        what = str(each) if each.name is None else f"config for {each}"
        print(f"Completed updating {what}.")
