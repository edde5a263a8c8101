"""References to secrets in files of settings (KIP-297): `${file:/path:key}`, `${dir:/folder:name}`, `${env:NAME}`.

    config.providers=file
    config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider
    config.providers.file.param.allowed.paths=/etc/kafka/secrets

The three providers of Apache Kafka are known by their classes; nothing is loaded. Values of files are resolved, never
those that are set while a broker runs, so that a request cannot read files. Unlike in Kafka, a reference that cannot be
resolved is an error: a password would otherwise be the text of the reference.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

_PREFIX: Final = "config.providers"
_PACKAGE: Final = "org.apache.kafka.common.config.provider."
_REFERENCE: Final = re.compile(r"\$\{([^}:]*):(?:([^}]*?):)?([^}:]*)\}")
_MAX_BYTES: Final = 1 << 20

Read = Callable[[str], bytes]
"""The contents of a file. Raises OSError."""


class ProviderError(ValueError):
    """A provider or a reference that cannot be used; the text names the setting, and no secret."""


class Resolved(NamedTuple):
    """Settings without references and without those of the providers."""

    settings: dict[str, str]
    secrets: tuple[str, ...]
    """The values that took the place of references, which no message may show."""

    def __repr__(self) -> str:
        return f"Resolved({len(self.settings)} settings)"


class _Provider(NamedTuple):
    kind: str
    allowed_paths: tuple[str, ...]
    allowed_names: re.Pattern[str] | None


def resolve_references(settings: Mapping[str, str], read: Read) -> Resolved:
    """Replace the references in the values of a file. Raises ProviderError."""
    names = [each.strip() for each in settings.get(_PREFIX, "").split(",") if each.strip()]
    own = {name for name in settings if name == _PREFIX or name.startswith(f"{_PREFIX}.")}
    providers = {name: _provider(name, settings) for name in names}
    _check_parameters(own, names)
    secrets: list[str] = []

    def value_of(setting: str, found: re.Match[str]) -> str:
        provider = providers.get(found.group(1))
        if provider is None:
            return found.group()  # of no provider: text like any other, as in Kafka
        try:
            value = _value(provider, found.group(2) or "", found.group(3), read)
        except OSError as error:
            raise ProviderError(f"{setting}: {found.group()}: {error.strerror or error}") from error
        except ProviderError as error:
            raise ProviderError(f"{setting}: {found.group()}: {error}") from None
        secrets.append(value)
        return value

    def replaced(setting: str, text: str) -> str:
        return _REFERENCE.sub(lambda found: value_of(setting, found), text) if providers else text

    kept = {name: replaced(name, text) for name, text in settings.items() if name not in own}
    return Resolved(kept, tuple(each for each in secrets if each))


def _provider(name: str, settings: Mapping[str, str]) -> _Provider:
    setting = f"{_PREFIX}.{name}.class"
    kind = settings.get(setting, "").strip().removeprefix(_PACKAGE)
    if kind not in _KINDS:
        expected = ", ".join(_KINDS)
        raise ProviderError(f"{setting}={settings.get(setting, '')}: one of {expected} is expected")
    parameters = f"{_PREFIX}.{name}.param."
    paths = settings.get(f"{parameters}allowed.paths", "")
    pattern = settings.get(f"{parameters}allowlist.pattern", "")
    try:
        names = re.compile(pattern) if pattern else None
    except re.error as error:
        raise ProviderError(f"{parameters}allowlist.pattern={pattern}: {error}") from error
    allowed = tuple(os.path.realpath(each.strip()) for each in paths.split(",") if each.strip())
    return _Provider(kind, allowed, names)


def _check_parameters(own: set[str], names: list[str]) -> None:
    for name in sorted(own - {_PREFIX}):
        provider, _, parameter = name.removeprefix(f"{_PREFIX}.").partition(".")
        if provider not in names:
            raise ProviderError(f"{name}: {provider} is not in config.providers")
        if parameter not in ("class", "param.allowed.paths", "param.allowlist.pattern"):
            raise ProviderError(f"{name}: param.allowed.paths and param.allowlist.pattern are possible")


def _value(provider: _Provider, path: str, key: str, read: Read) -> str:
    return _KINDS[provider.kind](provider, path, key, read)


def _from_environment(provider: _Provider, path: str, key: str, _read: Read) -> str:
    if path:
        raise ProviderError("an environment variable has no path: ${PROVIDER:NAME} is expected")
    if provider.allowed_names is not None and not provider.allowed_names.fullmatch(key):
        raise ProviderError("param.allowlist.pattern does not match the name")
    value = os.environ.get(key)
    if value is None:
        raise ProviderError("the environment variable is not set")
    return value


def _from_file(provider: _Provider, path: str, key: str, read: Read) -> str:
    import javaproperties

    text = _text(provider, path, read)
    try:
        found: dict[str, str] = javaproperties.loads(text)
    except (ValueError, javaproperties.InvalidUEscapeError):
        raise ProviderError("the file is not a properties file") from None
    if key not in found:
        raise ProviderError("the file has no such key")
    return found[key]


def _from_folder(provider: _Provider, path: str, key: str, read: Read) -> str:
    if not key or key in (".", "..") or "/" in key:
        raise ProviderError("the name of a file in the folder is expected")
    return _text(provider, os.path.join(path, key), read)


def _text(provider: _Provider, path: str, read: Read) -> str:
    if not path:
        raise ProviderError("a path is expected: ${PROVIDER:PATH:KEY}")
    real = os.path.realpath(path)
    if provider.allowed_paths and not any(Path(real).is_relative_to(each) for each in provider.allowed_paths):
        raise ProviderError("param.allowed.paths does not allow the path")
    data = read(path)
    if len(data) > _MAX_BYTES:
        raise ProviderError(f"the file has more than {_MAX_BYTES} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ProviderError("the file is not text in UTF-8") from None


_KINDS: Final = {
    "FileConfigProvider": _from_file,
    "DirectoryConfigProvider": _from_folder,
    "EnvVarConfigProvider": _from_environment,
}
