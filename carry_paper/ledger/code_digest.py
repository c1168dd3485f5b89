"""A digest of the code that measures a quantity: it changes when the code does, and not its words.

Rows of the table of measurements have it, so that those of other code are measured anew. It covers
the function and whatever it names in `COVERED`, one thing after the other: functions, classes with
their methods, and constants. Comments, docstrings and spaces do not count. A method is covered if
its class is named somewhere on the way, in a signature for example. The model itself, files and
groups are not covered, nor is the fast code: their own tests hold them to the same numbers.
"""

import hashlib
import inspect
import io
import textwrap
import tokenize
from collections.abc import Iterator
from dataclasses import is_dataclass
from functools import cache
from types import CodeType, FunctionType, ModuleType
from typing import Any

COVERED = (
    "carry_core.measure",
    "carry_core.interventions",
    "carry_core.pairs",
    "carry_core.carries",
    "carry_core.sums",
    "carry_paper.findings",
    "carry_paper.ledger",
    "carry_paper.llm",
)
LENGTH = 16  # digits of a digest


@cache
def digest(function: Any) -> str:
    """Return the digest of a function and of what it names, as hexadecimal digits."""
    sha256 = hashlib.sha256()
    for line in sorted(lines_of(function)):
        sha256.update(f"{line}\n".encode())
    return sha256.hexdigest()[:LENGTH]


def lines_of(function: Any) -> set[str]:
    """Return a line for each function, class and constant on the way: its name and its text."""
    waiting, seen = [function], set()
    lines: set[str] = set()
    while waiting:
        thing = waiting.pop()
        if thing in seen:
            continue
        seen.add(thing)
        own_lines, code = _lines_and_code(thing)
        lines |= own_lines
        waiting += code
    return lines


@cache
def _lines_and_code(thing: Any) -> tuple[set[str], set[Any]]:
    """Return the lines of a function or class and of its constants, and the code that it names."""
    lines = {f"{thing.__module__}.{thing.__qualname__}: {_text(thing)}"}
    code = set()
    for function in _functions(thing):
        for name, used in _used(function):
            if _is_ours(used):
                code.add(inspect.unwrap(used))
            elif _is_plain(used):
                lines.add(f"{function.__module__}.{name}: {used!r}")
    return lines, code


def _functions(thing: Any) -> Iterator[FunctionType]:
    """Yield a function, or the methods of a class."""
    if isinstance(thing, FunctionType):
        yield thing
        return
    for member in vars(thing).values():
        function = getattr(member, "fget", getattr(member, "__func__", member))
        function = inspect.unwrap(function) if callable(function) else function
        if isinstance(function, FunctionType) and _is_ours(function):
            yield function


def _used(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield what a function names, with its name: its globals, and those of modules it names.

    Names in signatures count too.
    """
    names = {name for name in _names(function.__code__) if not name.startswith("__")}
    scope = function.__globals__
    modules = [scope[name] for name in names if isinstance(scope.get(name), ModuleType)]
    for name in sorted(names):
        if name in scope:
            yield name, scope[name]
        for module in modules:
            if _is_covered(module.__name__) and hasattr(module, name):
                yield f"{module.__name__}.{name}", getattr(module, name)
    for annotation in function.__annotations__.values():
        if _is_ours(annotation):
            yield annotation.__name__, annotation
    for i, default in enumerate(function.__defaults__ or ()):
        yield f"{function.__qualname__}({i})", default


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names of globals and attributes in a function's code, with the functions in it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _is_ours(thing: Any) -> bool:
    """Return True for a function or class of this project's packages."""
    thing = inspect.unwrap(thing) if callable(thing) else thing
    is_code = isinstance(thing, FunctionType | type)
    return is_code and _is_covered(getattr(thing, "__module__", "") or "")


def _is_covered(module: str) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in COVERED)


def _is_plain(value: Any) -> bool:
    """Return True for a constant whose words are its value: a number, a text, or several."""
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(_is_plain(x) for pair in value.items() for x in pair)
    return isinstance(value, bool | int | float | str) or is_dataclass(type(value))


def _text(thing: Any) -> str:
    """Return the source of a function or class without docstrings, comments and spaces."""
    try:
        source = textwrap.dedent(inspect.getsource(thing))
    except (OSError, TypeError):
        return repr(thing)
    words = []
    is_new_line = True
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        is_docstring = is_new_line and token.type == tokenize.STRING
        if token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
            is_new_line = True
        elif token.type not in (tokenize.NL, tokenize.COMMENT) and not is_docstring:
            is_new_line = False
            words.append(token.string)
    return "".join("".join(words).split())
