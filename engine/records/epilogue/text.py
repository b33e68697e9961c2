"""Parser of an epilogue's text, see `chain`. Needs the standard library alone."""

import re

from gemmtune.engine.records.epilogue.chain import NO_EPILOGUE, Epilogue, Output, epilogue_of
from gemmtune.engine.records.epilogue.terms import ELEMENT_BYTES, OPERATIONS, Call, Operand, OperandShape, Product, Term
from gemmtune.engine.records.errors import did_you_mean
from gemmtune.engine.records.number_text import number_of

_SHOWN = 200  # characters of a wrong text in a message
_MOST_ROWS = 2**31 - 1  # per vector of a gate
_DEEPEST = 32  # parentheses within parentheses
_MOST_TOKENS = 500  # the longest formula of an activation has 120
_TOKEN = re.compile(r"\s*(-?(?:\d+\.?\d*(?:e[+-]?\d+)?|inf\b)|[a-z_][a-z0-9_]*|[()\[\],.+]|\S)")
_OPERAND = re.compile(rf"({'|'.join(OperandShape)})([2-9]|[1-9]\d+)?")
_HELP = "an epilogue reads like add(matrix).relu"


def parse_epilogue(text: str) -> Epilogue:
    """Return the epilogue of a text, in normal form; `none` is the plain product.

    Raises:
        ValueError: the text is malformed, or an operation, operand or type is unknown; the message names it.
    """
    parser = _Parser(text.strip().lower())
    return NO_EPILOGUE if parser.text == "none" else parser.epilogue()


class _Parser:
    """Reader of one text, token by token."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._tokens = _TOKEN.findall(text)
        self._next = 0
        self._depth = 0

    def epilogue(self) -> Epilogue:
        if len(self._tokens) > _MOST_TOKENS:
            raise self._error(f"{len(self._tokens)} names and signs are more than {_MOST_TOKENS}")
        outputs = [self._output()]
        while self._taken("+"):
            outputs.append(self._output())
        if self._next < len(self._tokens):
            raise self._error(f"{self._tokens[self._next]!r} is not expected there")
        return epilogue_of(outputs)

    def _output(self) -> Output:
        term, dtype = self._chain(inner=False)
        return Output(term, dtype)

    def _chain(self, *, inner: bool) -> tuple[Term, str]:
        """Return the value of a chain, and the type that a last `to` gives it."""
        if self._depth > _DEEPEST:
            raise self._error(f"more than {_DEEPEST} arguments stand within each other")
        term = self._first(inner)
        while self._taken("."):
            name = self._name()
            if name == "to":
                if inner:
                    raise self._error("`to` ends an output, for all is computed in fp32")
                return term, self._type()
            term = self._call(name, term)
        return term, ""

    def _first(self, inner: bool) -> Term:
        """Return what a chain begins with: the product, an operand, a number, or a first operation."""
        token = self._peek()
        if re.match(r"-?(\d|inf$)", token):
            self._next += 1
            return number_of(token)
        name = self._name()
        if name == "x":
            return Product()
        if found := _OPERAND.fullmatch(name):
            return self._operand(OperandShape(found[1]), int(found[2] or 1))
        if name == "to" and not inner:
            self._next -= 1
            self._tokens.insert(self._next, ".")
            return Product()
        return self._call(name, None if inner else Product(), first=True)

    def _operand(self, shape: OperandShape, number: int) -> Operand:
        facts: list[str] = []
        block = ""
        if self._taken("["):
            if shape is OperandShape.GATE and self._peek().isdecimal():
                block, self._next = self._peek(), self._next + 1
            if not block or self._taken(","):
                facts.append(self._name())
            while self._taken(","):
                facts.append(self._name())
            self._expect("]")
        types = [fact for fact in facts if fact != "t"]
        for unknown in [*(fact for fact in types if fact not in ELEMENT_BYTES), *types[1:]]:
            raise self._error(f"{unknown!r} is no type of an operand; known: {', '.join(ELEMENT_BYTES)}, and t")
        if "t" in facts and shape is not OperandShape.MATRIX:
            raise self._error(f"a {shape} has no layout: leave out t")
        if shape is OperandShape.GATE and not 0 < int(block or 0) <= _MOST_ROWS:
            raise self._error("a gate says how many rows each of its vectors is for, as in gate[4096]")
        return Operand(shape, number, types[0] if types else "", "t" in facts, int(block or 0))

    def _call(self, name: str, receiver: Term | None, *, first: bool = False) -> Call:
        """Return an operation on the value before it, or on its arguments alone if it has them all."""
        if name not in OPERATIONS:
            meant = did_you_mean(name, OPERATIONS)
            known = ", ".join(sorted(OPERATIONS))
            raise self._error(
                f"{name!r} is no operation; {meant}known: {known}; to; operands: {', '.join(OperandShape)}"
            )
        arguments = self._arguments() if self._taken("(") else []
        wanted = OPERATIONS[name]
        if first and len(arguments) == wanted:
            return Call(name, tuple(arguments))
        if receiver is None:
            raise self._error(f"{name} within an argument says what it is of, as in x.{name} or matrix.{name}")
        if len(arguments) != wanted - 1:
            raise self._error(f"{name} takes {wanted - 1} arguments behind its value, not {len(arguments)}")
        return Call(name, (receiver, *arguments))

    def _arguments(self) -> list[Term]:
        self._depth += 1
        arguments = [self._chain(inner=True)[0]]
        while self._taken(","):
            arguments.append(self._chain(inner=True)[0])
        self._expect(")")
        self._depth -= 1
        return arguments

    def _type(self) -> str:
        self._expect("(")
        dtype = self._name()
        self._expect(")")
        if dtype not in ELEMENT_BYTES or dtype == "bool":
            known = ", ".join(name for name in ELEMENT_BYTES if name != "bool")
            raise self._error(f"{dtype!r} is no type of an output; known: {known}")
        return dtype

    def _peek(self) -> str:
        return self._tokens[self._next] if self._next < len(self._tokens) else ""

    def _taken(self, token: str) -> bool:
        """Return whether a token is the next one, and go past it."""
        found = self._peek() == token
        self._next += found
        return found

    def _expect(self, token: str) -> None:
        if not self._taken(token):
            raise self._error(f"{token!r} is missing before {self._peek() or 'the end'!r}")

    def _name(self) -> str:
        name = self._peek()
        if not re.fullmatch(r"[a-z_][a-z0-9_]*", name):
            raise self._error(f"a name is missing before {name or 'the end'!r}")
        self._next += 1
        return name

    def _error(self, reason: str) -> ValueError:
        return ValueError(f"epilogue {self.text[:_SHOWN]!r}: {reason}; {_HELP}, see docs/epilogues.md")
