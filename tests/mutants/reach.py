"""Tell which test files reach a line of the source, from what recording/ has written down."""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Reach:
    """Test files of each function of a source file, and the seconds of each test file."""

    tests: dict[str, dict[str, set[str]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(set)))
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @classmethod
    def read(cls, text: str) -> Reach:
        """Read the recorder's lines: test file, source file and function, or no source file and a test's seconds."""
        found = cls()
        for test, path, value in (line.split("\t") for line in text.splitlines()):
            if path:
                found.tests[path][value].add(test)
            else:
                found.seconds[test] += float(value)
        return found

    def to_json(self) -> dict[str, Any]:
        tests = {path: {name: sorted(its) for name, its in names.items()} for path, names in self.tests.items()}
        return {"seconds": self.seconds, "tests": tests}

    @classmethod
    def of_json(cls, found: dict[str, Any]) -> Reach:
        tests = {path: {name: {*its} for name, its in names.items()} for path, names in found["tests"].items()}
        return cls(tests, found["seconds"])

    def of(self, path: str, source: bytes, line: int) -> list[str]:
        """Return the test files that reach a line, the quickest first.

        Where the recording has no function around the line, return all test files of the source file: a line of a
        module or of a class is in none, and a shared process may hide one.
        """
        functions = self.tests.get(path, {})
        found = functions.get(function_at(source, line)) or {test for tests in functions.values() for test in tests}
        return sorted(found, key=lambda test: (self.seconds.get(test, 0), test))


def function_at(source: bytes, line: int) -> str:
    """Return the `co_qualname` of the innermost `def` around a line; empty on a line of the module or of a class."""
    name, inside = "", ""
    node: Any = ast.parse(source)
    while True:
        around = [
            each
            for each in ast.walk(node)
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and each is not node
            if each.lineno <= line <= (each.end_lineno or 0)
        ]
        if not around:
            return name
        node = min(around, key=lambda each: each.lineno)
        is_class = isinstance(node, ast.ClassDef)
        name = "" if is_class else inside + node.name
        inside += node.name + ("." if is_class else ".<locals>.")
