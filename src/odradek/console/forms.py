"""Fields of a form that the guard has read."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response


class FormError(HTTPException):
    """A field is missing or wrong: status 400."""

    def __init__(self, message: str) -> None:
        super().__init__(400, message)


def field(request: Request, name: str, default: str | None = None) -> str:
    """The first field of a name. Raises FormError if it is missing without a default."""
    for each, value in request.state.form:
        if each == name:
            return str(value)
    if default is None:
        raise FormError(f"The field {name} is missing.")
    return default


def fields(request: Request, name: str) -> list[str]:
    """All fields of a name, in order."""
    return [value for each, value in request.state.form if each == name]


def number(text: str, name: str, *, least: int = 0, most: int = 2**63 - 1) -> int:
    """A whole number. Raises FormError."""
    try:
        value = int(text)
    except ValueError:
        raise FormError(f"{name}: {text!r} is not a whole number.") from None
    if not least <= value <= most:
        raise FormError(f"{name}: {value} is not between {least} and {most}.")
    return value


def confirm(request: Request, name: str) -> None:
    """Raise FormError unless the name was typed to confirm the change."""
    if field(request, "confirm", "") != name:
        raise FormError(f"To confirm, type the name {name!r} exactly. Nothing was changed.")


def see(path: str) -> Response:
    """Send the browser to a page after a form."""
    return RedirectResponse(path, 303)
