"""`odradek debug bundle`: the facts about a cluster that somebody needs who is asked for help, without secrets."""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import sys
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from odradek.cli.actions.redaction import redact, redact_setting
from odradek.cli.arguments.errors import CommandError, UsageError
from odradek.cli.session import run_admin
from odradek.client.errors import ClientError
from odradek.version import __version__
from odradek.wire.errors import KafkaError

if TYPE_CHECKING:
    from odradek.client.admin import Admin

LOG_BYTES: Final = 10 * 1024 * 1024
"""The end of a log that is kept."""
_PAGE_BYTES: Final = 64 * 1024 * 1024
_REASON_BYTES: Final = 1024
_HTTP_TIMEOUT_S: Final = 30.0


def bundle(arguments: argparse.Namespace) -> int:
    """Write the archive; 1 if the cluster cannot be reached, which the archive then says.

    An existing file is never replaced. Raises UsageError, CommandError.
    """
    path = Path(arguments.file)
    if path.exists():
        raise UsageError(f"{path} exists: name a new file")
    contents = {}
    sources = {}
    for number, log in enumerate(arguments.log):
        contents[f"log-{number}.txt"] = redact(_end_of_log(Path(log)))
        sources[f"log-{number}.txt"] = os.path.basename(log)
    for number, address in enumerate(arguments.metrics):
        for name, path_of_broker in _pages(arguments.profile_seconds).items():
            contents[f"{name}-{number}.txt"] = _page(address, path_of_broker)
            sources[f"{name}-{number}.txt"] = address
    status = 0
    try:
        contents |= run_admin(arguments, _collect)
    except CommandError as error:
        # A bundle is needed most where the cluster does not answer.
        contents["cluster.json"] = _document({"error": redact(str(error))})
        print(f"odradek debug: {error}; the bundle has nothing from the cluster", file=sys.stderr)
        status = 1
    contents["versions.json"] = _document(_versions())
    contents["sources.json"] = _document(sources)
    _write(path, contents)
    print(f"Wrote {path}: {', '.join(sorted(contents))}.")
    print("Known forms of secrets are removed; read the files before you pass them on.", file=sys.stderr)
    return status


async def _collect(admin: Admin) -> dict[str, str]:
    parts: dict[str, Callable[[Admin], Awaitable[Any]]] = {
        "cluster.json": _cluster,
        "topics.json": _topics,
        "configs.json": _configs,
        "groups.json": _groups,
        "health.json": _health,
    }
    found = {}
    for name, part in parts.items():
        try:
            found[name] = _document(await part(admin))
        except (KafkaError, ClientError) as error:
            # The rest helps all the more where a part of the cluster fails.
            found[name] = _document({"error": redact(str(error))})
    return found


async def _cluster(admin: Admin) -> Any:
    from odradek.client.reports.cluster import look

    return await look(admin)


async def _topics(admin: Admin) -> Any:
    from odradek.client.reports.topics import describe_topics

    topics = await describe_topics(admin, await admin.list_topics(include_internal=True), 2_000)
    return [
        {
            **topic.row(),
            "configs": {name: redact_setting(name, value) for name, value in topic.configs.items()},
            "partitions": [each.row() for each in topic.partitions],
        }
        for topic in topics
    ]


async def _configs(admin: Admin) -> Any:
    from odradek.client.admin import ConfigResource, ConfigResourceType

    brokers = (await admin.describe_cluster()).brokers
    resources = [ConfigResource(ConfigResourceType.BROKER, str(each.node_id)) for each in brokers]
    described = await admin.describe_configs(resources)
    return {
        resource.name: {"error": redact(str(entries))}
        if isinstance(entries, KafkaError)
        else {
            name: {"value": redact_setting(name, each.value), "source": each.source.name, "sensitive": each.sensitive}
            for name, each in sorted(entries.items())
        }
        for resource, entries in described.items()
    }


async def _groups(admin: Admin) -> Any:
    from odradek.client.admin import GroupDescription
    from odradek.client.reports.groups import member_rows, offset_rows, state_row

    listed = [each.group_id for each in await admin.groups.list()]
    return [
        {**state_row(group, admin), "members": member_rows(group), "offsets": await offset_rows(admin, group)}
        if isinstance(group, GroupDescription)
        else {"group": name, "error": redact(str(group))}
        for name, group in (await admin.groups.describe(listed)).items()
    ]


async def _health(admin: Admin) -> Any:
    from odradek.client.reports.health import find_problems

    return [problem.row() for problem in await find_problems(admin)]


def _versions() -> dict[str, Any]:
    installed = sorted(f"{each.name}=={each.version}" for each in metadata.distributions())
    return {
        "odradek": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "made_at_ms": time.time_ns() // 1_000_000,
        "packages": installed,
    }


def _pages(profile_s: float) -> dict[str, str]:
    """Paths of a broker's HTTP listener by the names of their files."""
    pages = {"metrics": "/metrics", "stacks": "/debug/stacks"}
    if profile_s:
        pages["profile"] = f"/debug/profile?seconds={profile_s:g}"
    return pages


def _page(address: str, path: str) -> str:
    """The answer of one broker's HTTP listener, or the reason why it did not answer."""
    url = f"http://{address}{path}"
    try:
        # No proxy: the address is in the cluster's network, and a proxy of the user's would see it.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(url, timeout=_HTTP_TIMEOUT_S) as response:
            return redact(response.read(_PAGE_BYTES).decode(errors="replace"))
    except urllib.error.HTTPError as error:
        with error:
            return f"# {url}: HTTP status {error.code}: {error.read(_REASON_BYTES).decode(errors='replace')}\n"
    except (OSError, ValueError) as error:
        return f"# {url}: {error}\n"


def _end_of_log(path: Path) -> str:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - LOG_BYTES))
            data = file.read(LOG_BYTES)
    except OSError as error:
        raise UsageError(f"--log {path}: {error.strerror or error}") from error
    if size > LOG_BYTES:
        # A secret that is cut in two would not be recognized: drop the first, incomplete line.
        data = data.partition(b"\n")[2]
    return data.decode(errors="replace")


def _document(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n"


def _write(path: Path, contents: Mapping[str, str]) -> None:
    """Write a tar.gz that only its owner may read. Raises CommandError, and leaves no part of a file."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror or error}") from error
    try:
        with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
            for name, text in sorted(contents.items()):
                data = text.encode()
                entry = tarfile.TarInfo(f"odradek-debug/{name}")
                entry.size, entry.mode, entry.mtime = len(data), 0o600, int(time.time())
                archive.addfile(entry, io.BytesIO(data))
    except OSError as error:
        path.unlink()
        raise CommandError(f"cannot write {path}: {error.strerror or error}") from error
