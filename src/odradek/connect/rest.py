"""Kafka Connect's REST interface over a worker.

A request from a page of another site is rejected: by its Host header, by an Origin, and because bodies must be
declared as JSON. Who may connect at all is a matter of the address; see `odradek connect --listen`.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from odradek.client.errors import ClientError
from odradek.connect import converters, transforms
from odradek.connect.errors import ConfigInvalid, Conflict, ConnectError
from odradek.connect.loggers import Loggers, UnknownLogger
from odradek.connect.model import Target
from odradek.connect.plugins import PLUGINS, Plugin
from odradek.connect.settings import Checked, Setting, Type
from odradek.connect.worker import AlreadyExists, NotFound, Worker
from odradek.ports.hosts import host_of_header, is_loopback
from odradek.version import __version__
from odradek.wire.errors import KafkaError

MAX_BODY_BYTES: Final = 1 << 20
_HIDDEN: Final = "[hidden]"


class JsonResponse(JSONResponse):
    """A document. Texts in it, such as names of files and messages with data, may be no Unicode."""

    def render(self, content: Any) -> bytes:
        """The document in UTF-8."""
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode(errors="backslashreplace")


class LoggersApi:
    """The handlers of loggers."""

    def __init__(self) -> None:
        self._loggers = Loggers()

    async def list(self, _request: Request) -> Response:
        """The loggers that have a level of their own."""
        return JsonResponse(self._loggers.all())

    async def show(self, request: Request) -> Response:
        """A logger."""
        return JsonResponse(self._loggers.one(request.path_params["logger"]))

    async def set_level(self, request: Request) -> Response:
        """Set the level of a logger and of those below it. There is one worker: it is the cluster (KIP-976)."""
        level = (await _body(request)).get("level")
        if not isinstance(level, str):
            raise HTTPException(400, "Desired 'level' parameter was not specified in request.")
        changed = self._loggers.set_level(request.path_params["logger"], level)
        if request.query_params.get("scope") == "cluster":
            return Response(status_code=HTTPStatus.NO_CONTENT)
        return JsonResponse(changed)


class Api:
    """The handlers. Each returns Kafka Connect's document and status."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._loggers = LoggersApi()

    def routes(self) -> list[Route]:
        """The table of paths."""
        table: tuple[tuple[str, str, Callable[[Request], Awaitable[Response]]], ...] = (
            ("GET", "/", self.root),
            ("GET", "/health", self.health),
            ("GET", "/connector-plugins", self.plugins),
            ("GET", "/connector-plugins/{plugin}/config", self.plugin_settings),
            ("PUT", "/connector-plugins/{plugin}/config/validate", self.validate),
            ("GET", "/admin/loggers", self._loggers.list),
            ("GET", "/admin/loggers/{logger}", self._loggers.show),
            ("PUT", "/admin/loggers/{logger}", self._loggers.set_level),
            ("GET", "/connectors", self.list),
            ("POST", "/connectors", self.create),
            ("GET", "/connectors/{name}", self.show),
            ("DELETE", "/connectors/{name}", self.delete),
            ("GET", "/connectors/{name}/config", self.show_config),
            ("PUT", "/connectors/{name}/config", self.put_config),
            ("PATCH", "/connectors/{name}/config", self.patch_config),
            ("GET", "/connectors/{name}/status", self.status),
            ("PUT", "/connectors/{name}/pause", self.pause),
            ("PUT", "/connectors/{name}/resume", self.resume),
            ("PUT", "/connectors/{name}/stop", self.stop),
            ("POST", "/connectors/{name}/restart", self.restart),
            ("GET", "/connectors/{name}/tasks", self.tasks),
            ("GET", "/connectors/{name}/tasks/{task:int}/status", self.task_status),
            ("POST", "/connectors/{name}/tasks/{task:int}/restart", self.restart_task),
            ("GET", "/connectors/{name}/topics", self.topics),
            ("PUT", "/connectors/{name}/topics/reset", self.reset_topics),
            ("GET", "/connectors/{name}/offsets", self.offsets),
            ("PATCH", "/connectors/{name}/offsets", self.alter_offsets),
            ("DELETE", "/connectors/{name}/offsets", self.reset_offsets),
        )
        return [Route(path, handler, methods=[method]) for method, path, handler in table]

    # --- the worker ---

    async def root(self, _request: Request) -> Response:
        """The version, and the Kafka cluster's id."""
        return JsonResponse({"version": __version__, "commit": "odradek", "kafka_cluster_id": self._worker.cluster_id})

    async def health(self, _request: Request) -> Response:
        """That the worker serves (KIP-1017)."""
        return JsonResponse({"status": "healthy", "message": "Worker has completed startup and is ready."})

    async def plugins(self, request: Request) -> Response:
        """The kinds of connectors; with `connectorsOnly=false` converters and transforms, too (KIP-769)."""
        found = [(each.name, str(each.kind)) for each in PLUGINS]
        if not _flag(request, "connectorsOnly", default=True):
            found += [(name, "converter") for name in converters.NAMES.values()]
            found += [(name, "transformation") for name in transforms.class_names()]
        return JsonResponse([{"class": name, "type": kind, "version": __version__} for name, kind in found])

    async def plugin_settings(self, request: Request) -> Response:
        """The settings of a kind of connector, of a converter or of a transform."""
        name = request.path_params["plugin"]
        settings = converters.settings_of(name) or transforms.settings_of(name)
        if settings is None:
            plugin, _ = self._worker.validate(name, {})
            settings = plugin.all_settings()
        return JsonResponse([_definition(each) for each in settings])

    async def validate(self, request: Request) -> Response:
        """A configuration checked, setting by setting."""
        config = _config(await _body(request))
        plugin, checked = self._worker.validate(request.path_params["plugin"], config)
        return JsonResponse(_validation(plugin, config, checked))

    # --- connectors ---

    async def list(self, request: Request) -> Response:
        """Names of connectors; with `expand`, their documents."""
        expand = request.query_params.getlist("expand")
        connectors = self._worker.connectors
        if not expand:
            return JsonResponse(sorted(connectors))
        unknown = [each for each in expand if each not in ("status", "info")]
        if unknown:
            raise HTTPException(400, f"expand={unknown[0]}: status or info expected")
        found = {
            name: {each: (one.status() if each == "status" else one.info()) for each in expand}
            for name, one in sorted(connectors.items())
        }
        return JsonResponse(found)

    async def create(self, request: Request) -> Response:
        """Create a connector."""
        body = await _body(request)
        name = body.get("name")
        if not isinstance(name, str) or not name:
            raise HTTPException(400, '"name" expected')
        state = str(body.get("initial_state") or Target.STARTED).upper()
        # "RUNNING" is how Kafka writes it (KIP-980)
        state = Target.STARTED if state == "RUNNING" else state
        if state not in list(Target):
            raise HTTPException(400, f"initial_state {state}: RUNNING, PAUSED or STOPPED expected")
        connector = await self._worker.create(name, _config(body.get("config")), Target(state))
        return JsonResponse(connector.info(), HTTPStatus.CREATED, {"location": f"/connectors/{quote(name)}"})

    async def show(self, request: Request) -> Response:
        """A connector."""
        return JsonResponse(self._worker.find(request.path_params["name"]).info())

    async def delete(self, request: Request) -> Response:
        """Remove a connector."""
        await self._worker.delete(request.path_params["name"])
        return Response(status_code=HTTPStatus.NO_CONTENT)

    async def show_config(self, request: Request) -> Response:
        """A connector's configuration."""
        return JsonResponse(self._worker.find(request.path_params["name"]).config)

    async def put_config(self, request: Request) -> Response:
        """Create a connector, or replace its configuration."""
        connector, is_new = await self._worker.put(request.path_params["name"], _config(await _body(request)))
        return JsonResponse(connector.info(), HTTPStatus.CREATED if is_new else HTTPStatus.OK)

    async def patch_config(self, request: Request) -> Response:
        """Change single settings; null removes one (KIP-477)."""
        name = request.path_params["name"]
        config = dict(self._worker.find(name).config)
        for each, text in (await _body(request)).items():
            if text is None:
                config.pop(each, None)
            else:
                config.update(_config({each: text}))
        connector, _ = await self._worker.put(name, config)
        return JsonResponse(connector.info())

    async def status(self, request: Request) -> Response:
        """The states of a connector and its tasks."""
        return JsonResponse(self._worker.find(request.path_params["name"]).status())

    async def pause(self, request: Request) -> Response:
        """Pause a connector."""
        return await self._aim(request, Target.PAUSED)

    async def resume(self, request: Request) -> Response:
        """Start a paused or stopped connector."""
        return await self._aim(request, Target.STARTED)

    async def stop(self, request: Request) -> Response:
        """Stop a connector: its tasks end, and its offsets may be changed."""
        return await self._aim(request, Target.STOPPED)

    async def _aim(self, request: Request, target: Target) -> Response:
        await self._worker.set_target(request.path_params["name"], target)
        return Response(status_code=HTTPStatus.ACCEPTED)

    async def restart(self, request: Request) -> Response:
        """Restart a connector, and its tasks with `includeTasks`; only what failed with `onlyFailed`."""
        name = request.path_params["name"]
        include, only_failed = _flag(request, "includeTasks"), _flag(request, "onlyFailed")
        await self._worker.restart(name, include_tasks=include, only_failed=only_failed)
        if not include and not only_failed:
            return Response(status_code=HTTPStatus.NO_CONTENT)
        return JsonResponse(self._worker.find(name).status(), HTTPStatus.ACCEPTED)

    # --- tasks and topics ---

    async def tasks(self, request: Request) -> Response:
        """The tasks of a connector with their configurations."""
        connector = self._worker.find(request.path_params["name"])
        return JsonResponse([{"id": each, "config": connector.config} for each in connector.task_ids()])

    async def task_status(self, request: Request) -> Response:
        """The state of a task."""
        connector = self._worker.find(request.path_params["name"])
        number = request.path_params["task"]
        found = next((each for each in connector.tasks if each.id == number), None)
        if found is None:
            raise NotFound(f"No status found for task {connector.name}-{number}")
        return JsonResponse(connector.task_status(found))

    async def restart_task(self, request: Request) -> Response:
        """Restart a task."""
        await self._worker.restart_task(request.path_params["name"], request.path_params["task"])
        return Response(status_code=HTTPStatus.NO_CONTENT)

    async def topics(self, request: Request) -> Response:
        """The topics that a connector has used (KIP-558)."""
        connector = self._worker.find(request.path_params["name"])
        return JsonResponse({connector.name: {"topics": sorted(connector.topics)}})

    async def reset_topics(self, request: Request) -> Response:
        """Forget the topics that a connector has used."""
        self._worker.find(request.path_params["name"]).topics.clear()
        return Response()

    # --- offsets ---

    async def offsets(self, request: Request) -> Response:
        """The offsets of a connector."""
        return JsonResponse({"offsets": await self._worker.offsets(request.path_params["name"])})

    async def alter_offsets(self, request: Request) -> Response:
        """Set offsets of a stopped connector."""
        given = (await _body(request)).get("offsets")
        if not isinstance(given, list) or not given:
            raise HTTPException(400, '"offsets": a list of {"partition": {…}, "offset": {…}} expected')
        changes = []
        for each in given:
            partition = each.get("partition") if isinstance(each, dict) else None
            offset = each.get("offset") if isinstance(each, dict) else 0
            if not isinstance(partition, dict) or not isinstance(offset, dict | None):
                raise HTTPException(400, '{"partition": {…}, "offset": {…}} expected')
            changes.append((partition, offset))
        try:
            await self._worker.alter_offsets(request.path_params["name"], changes)
        except ValueError as error:
            raise HTTPException(400, str(error)) from error
        return JsonResponse({"message": "The offsets for this connector have been altered successfully"})

    async def reset_offsets(self, request: Request) -> Response:
        """Remove the offsets of a stopped connector."""
        await self._worker.reset_offsets(request.path_params["name"])
        return JsonResponse({"message": "The offsets for this connector have been reset successfully"})


def _flag(request: Request, name: str, *, default: bool = False) -> bool:
    return request.query_params.get(name, str(default)).lower() == "true"


async def _body(request: Request) -> dict[str, Any]:
    """The JSON object of a request."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Content-Type: application/json expected")
    data = b""
    async for part in request.stream():
        data += part
        if len(data) > MAX_BODY_BYTES:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {MAX_BODY_BYTES} bytes expected")
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"the body is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise HTTPException(400, "a JSON object expected")
    return found


def _config(given: Any) -> dict[str, str]:
    """A configuration: texts by name. Numbers and booleans are taken as their texts, as Kafka Connect does."""
    if not isinstance(given, dict):
        raise HTTPException(400, "a configuration expected: an object of names and texts")
    config = {}
    for name, value in given.items():
        if isinstance(value, bool):
            config[name] = str(value).lower()
        elif isinstance(value, int | float | str):
            config[name] = str(value)
        else:
            raise HTTPException(400, f"{name}: a text expected")
    return config


def _definition(setting: Setting) -> dict[str, Any]:
    """A setting as Kafka Connect describes it."""
    return {
        "name": setting.name,
        "type": setting.type,
        "required": setting.is_required,
        "default_value": None if setting.is_required else _text(setting.default),
        "importance": setting.importance,
        "documentation": setting.documentation,
        "group": setting.group,
        "width": "MEDIUM",
        "display_name": setting.name,
        "dependents": [],
        "order": 0,
    }


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, list) else str(value)


def _validation(plugin: Plugin, config: Mapping[str, str], checked: Checked) -> dict[str, Any]:
    """The document of a validation."""
    settings = plugin.all_settings()
    # What is wrong beyond single settings is shown at the kind of connector.
    own = {each.name for each in settings}
    elsewhere = [line for name, lines in checked.errors.items() if name not in own for line in lines]
    configs = []
    for order, each in enumerate(settings):
        value = config.get(each.name)
        if value is None and not each.is_required:
            value = _text(each.default)
        errors = list(checked.errors.get(each.name, []))
        if each.name == "connector.class":
            errors += elsewhere
        shown = _HIDDEN if each.type is Type.PASSWORD and value else value
        configs.append(
            {
                "definition": {**_definition(each), "order": order},
                "value": {
                    "name": each.name,
                    "value": shown,
                    "recommended_values": list(each.choices),
                    "errors": errors,
                    "visible": True,
                },
            }
        )
    groups = list(dict.fromkeys(each.group for each in settings))
    count = sum(1 for each in configs if each["value"]["errors"])
    return {"name": plugin.name, "error_count": count, "groups": groups, "configs": configs}


def _failure(status: int, message: str) -> Response:
    return JsonResponse({"error_code": status, "message": message}, status)


async def _on_error(_request: Request, error: Exception) -> Response:
    """A failure as Kafka Connect's document."""
    if isinstance(error, HTTPException):
        return _failure(error.status_code, error.detail)
    if isinstance(error, NotFound | UnknownLogger):
        return _failure(HTTPStatus.NOT_FOUND, str(error))
    if isinstance(error, AlreadyExists):
        return _failure(HTTPStatus.CONFLICT, str(error))
    if isinstance(error, Conflict):
        # As Kafka Connect answers where the offsets of a connector cannot be changed.
        return _failure(HTTPStatus.BAD_REQUEST, str(error))
    if isinstance(error, ConfigInvalid):
        count = sum(map(len, error.errors.values()))
        return _failure(
            HTTPStatus.BAD_REQUEST,
            f"Connector configuration is invalid and contains the following {count} error(s):\n"
            + "\n".join(line for lines in error.errors.values() for line in lines),
        )
    return _failure(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}")


class _Guard:
    """Rejects requests that a page of another site made a browser send (CSRF, DNS rebinding)."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            name = host_of_header(headers.get("host", ""))
            if name not in self._hosts and not is_loopback(name):
                await _failure(421, f"this worker does not serve {name}: --allowed-host adds names")(
                    scope, receive, send
                )
                return
            if "origin" in headers:
                await _failure(403, "requests of pages are rejected")(scope, receive, send)
                return
        await self._app(scope, receive, send)


def build(worker: Worker, hosts: frozenset[str]) -> Starlette:
    """The application; `hosts` are names by which it may be called, beside those of loopback."""
    handlers: Any = dict.fromkeys((HTTPException, ConnectError, KafkaError, ClientError), _on_error)
    return Starlette(
        routes=Api(worker).routes(),
        middleware=[Middleware(_Guard, hosts=hosts)],
        exception_handlers=handlers,
    )
