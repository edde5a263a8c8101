"""A change of functions that are already imported: nothing has to be imported again for a mutant."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Iterator
from types import CodeType, FunctionType


def functions_below(root: str) -> dict[str, list[FunctionType]]:
    """The functions of all imported modules below a directory, by path."""
    found: dict[str, list[FunctionType]] = defaultdict(list)
    for each in gc.get_objects():
        if type(each) is FunctionType and each.__code__.co_filename.startswith(root):
            found[each.__code__.co_filename].append(each)
    return dict(found)


def replace_functions(functions: list[FunctionType], path: str, before: bytes, after: bytes) -> bool:
    """Give the functions of the module at `path` the code of its changed source.

    Returns False, and changes nothing, if the change lies outside functions: then the module must be imported again."""
    old, new = compile(before, path, "exec", dont_inherit=True), compile(after, path, "exec", dont_inherit=True)
    changed = dict(_changed_functions(old, new, ()))
    if () in changed or not changed:
        return False
    replacements = dict(changed.values())
    found = [each for each in functions if each.__code__ in replacements]
    if not found:
        return False
    for function in found:
        function.__code__ = replacements[function.__code__]
    return True


def _changed_functions(
    old: CodeType, new: CodeType, place: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], tuple[CodeType, CodeType]]]:
    """Every function whose code differs, by its place in the tree; () if a module's or a class's own code does.

    A function contains the code of the functions in it, so all around a changed one are changed as well."""
    if not place or not old.co_flags & _IS_FUNCTION:
        inside = list(zip(_codes(old), _codes(new), strict=False))
        if len(_codes(old)) != len(_codes(new)) or _own(old) != _own(new):
            yield (), (old, new)
            return
    elif old == new:
        return
    else:
        yield place, (old, new)
        if old.co_freevars != new.co_freevars:
            yield (), (old, new)
        inside = [(each, other) for each, other in zip(_codes(old), _codes(new), strict=False)]
    for index, (each, other) in enumerate(inside):
        yield from _changed_functions(each, other, (*place, index))


_IS_FUNCTION = 0x02
"""CO_NEWLOCALS: the code of functions has it, that of modules and classes has not."""


def _codes(code: CodeType) -> list[CodeType]:
    return [constant for constant in code.co_consts if isinstance(constant, CodeType)]


def _own(code: CodeType) -> tuple[object, ...]:
    """What a module or class executes itself, without the functions in it."""
    constants = tuple((type(each), each) for each in code.co_consts if not isinstance(each, CodeType))
    return code.co_code, constants, code.co_names
