"""Mistakes of planted code itself: a bug that is found by one of them proves nothing of the checkers.

A name that the product changed is the usual one: the planted function then raises AttributeError before it does any
harm, a broker does not start, and the search would count the bug as found.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final

_MISTAKES: Final = (AttributeError, NameError, TypeError)


def watched(wrong: Any, mistakes: list[str]) -> Any:
    """What is planted, as it is, but that mistakes which its own lines raise are added to the list, too."""
    if isinstance(wrong, property):
        assert wrong.fget is not None
        return property(_watched(wrong.fget, mistakes))
    if isinstance(wrong, staticmethod):
        return staticmethod(_watched(wrong.__func__, mistakes))
    return _watched(wrong, mistakes) if inspect.isfunction(wrong) else wrong


def _watched(wrong: Callable[..., Any], mistakes: list[str]) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(wrong):

        @wraps(wrong)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            try:
                return await wrong(*args, **kwargs)
            except _MISTAKES as error:
                _note(error, wrong, mistakes)
                raise

        return awaited

    @wraps(wrong)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            return wrong(*args, **kwargs)
        except _MISTAKES as error:
            _note(error, wrong, mistakes)
            raise

    return called


def _note(error: Exception, wrong: Callable[..., Any], mistakes: list[str]) -> None:
    at = error.__traceback__
    assert at is not None, "it was raised"
    while at.tb_next is not None:
        at = at.tb_next
    file = at.tb_frame.f_code.co_filename
    # Of a call that does not fit, the last line is the one above. The product's own are the harm that the bug does.
    if file in (wrong.__code__.co_filename, __file__):
        mistakes.append(f"{Path(file).name}:{at.tb_lineno}: {type(error).__name__}: {error}")
