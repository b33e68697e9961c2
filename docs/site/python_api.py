"""Write docs/python-api.md from the docstrings of the public names."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import gemmtune as gt

PAGE = Path(__file__).parents[1] / "python-api.md"
HEAD = """# Python API

`import gemmtune as gt`: these names are public, everything else may change. The page is made from their docstrings.
"""
SECTIONS = {
    "Functions": inspect.isfunction,
    "Modules": inspect.ismodule,
    "Errors": lambda each: inspect.isclass(each) and issubclass(each, Exception),
    "Classes": inspect.isclass,
}
FIELD = re.compile(r"^    (\*{0,2}\w+): (.*(?:\n        .*)*)", re.MULTILINE)
SECTION = re.compile(r"^(Args|Returns|Raises):\n", re.MULTILINE)
MODULE = re.compile(r"\b(?:[a-z_]+\.)+(?=[A-Z])")


def page() -> str:
    """Return the page's Markdown."""
    left = {name: getattr(gt, name) for name in gt.__all__ if name != "__version__"}
    parts = [HEAD]
    for title, belongs in SECTIONS.items():
        found = [name for name, each in left.items() if belongs(each)]
        parts.append(f"## {title}\n")
        parts += [part for name in found for part in _entry(name, left.pop(name))]
    return "\n".join(parts)


def _entry(name: str, found: object) -> Iterator[str]:
    """Yield the paragraphs of a name: heading, signature, and docstring; methods of a class as a list."""
    yield f"### gt.{name}\n"
    if inspect.isfunction(found):
        yield f"```python no-run\n{_signature(name, found)}\n```\n"
    yield _markdown(inspect.getdoc(found) or "")
    if inspect.isclass(found) and not issubclass(found, Exception):
        members = [(key, each) for key, each in vars(found).items() if not key.startswith("_")]
        lines = [line for key, each in members if (line := _member(key, each))]
        yield "".join(f"- {line}\n" for line in lines)


def _signature(name: str, function: Callable[..., object]) -> str:
    """Return a function's signature, one parameter per line."""
    shown = []
    for each in inspect.signature(function).parameters.values():
        if each.kind is each.KEYWORD_ONLY and not any(line.startswith("*") for line in shown):
            shown.append("*")
        default = "=..." if callable(each.default) and each.default is not each.empty else ""
        plain = str(each.replace(default=each.empty) if default else each)
        shown.append(MODULE.sub("", plain.replace("'", '"')) + default)
    return f"gt.{name}(\n" + "".join(f"    {each},\n" for each in shown) + ")"


def _member(key: str, member: object) -> str:
    """Return a method or property with the first paragraph of its docstring; empty without one."""
    text = inspect.getdoc(member)
    if not (text and (inspect.isroutine(member) or isinstance(member, property))):
        return ""
    call = key if isinstance(member, property) else f"{key}(...)"
    return f"`{call}`: {' '.join(text.split(chr(10) * 2)[0].split())}"


def _markdown(docstring: str) -> str:
    """Return a docstring as Markdown: its arguments and errors as lists, its example as a fence."""
    text, _, example = docstring.replace("  # doctest: +SKIP", "").partition("Example:\n")
    text = FIELD.sub(lambda found: f"- `{found[1]}`: {' '.join(found[2].split())}", text)
    text = SECTION.sub(r"**\1**\n\n", text)
    text = re.sub(r"^    (?! )", "", text, flags=re.MULTILINE)
    return f"{text.rstrip()}\n" + (f"\n```pycon\n{inspect.cleandoc(example)}\n```\n" if example else "")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
