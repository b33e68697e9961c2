"""Result of a simple Triton kernel in torch: elementwise kernels, reductions of rows, and products of matrices."""

import ast
import re
from collections.abc import Mapping, Sequence

from gemmtune.spaces.triton.reading import Reading, address_of, bare, called

_UNARY = ("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "abs", "sin", "cos", "tanh", "erf", "sigmoid", "floor", "ceil")
_REDUCED = {"sum": "sum", "max": "amax", "min": "amin"}
_OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**"}
_COMPARED = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
_TAKEN = ("case", "arguments", "self", "torch", "triton", "make")
"""Names that a class's methods have for something else."""
_MODULES = ("tl", "triton", "math", "libdevice", "language")


class _UnknownError(Exception):
    """Statement or expression that is not translated."""


def derived_reference(
    source: str, reading: Reading, dims: Mapping[str, Sequence[str]], sizes: Sequence[str]
) -> list[str]:
    """Return statements that compute a kernel's outputs from `arguments` and `case`; empty where it is not that simple.

    A loop over blocks of a row or of k counts as one block that holds all of it, so sums that a loop adds up begin
    at zero.

    Args:
        source: source of the kernel's function.
        reading: what the source says about its arguments.
        dims: sizes of each tensor's dimensions by its name.
        sizes: names of the sizes, which are those of the case.
    """
    function = ast.parse(source).body[0]
    assert isinstance(function, ast.FunctionDef)
    translator = _Translator(function, reading, dims, sizes)
    try:
        translator.run(function.body)
    except _UnknownError:
        return []
    outputs = [name for name, its in reading.pointers.items() if its.stored]
    if set(outputs) != translator.stored.keys():
        return []
    return [*translator.lines, "return {", *(f'    "{each}": {translator.stored[each]},' for each in outputs), "}"]


def local_name(name: str) -> str:
    """Return the name that a kernel's argument or variable has in a class."""
    return f"{name}_" if name in _TAKEN else name


class _Translator:
    """Walk through a kernel's statements with whole tensors in the place of blocks."""

    def __init__(
        self, function: ast.FunctionDef, reading: Reading, dims: Mapping[str, Sequence[str]], sizes: Sequence[str]
    ) -> None:
        self._tensors, self._dims, self._sizes = reading.pointers, dims, sizes
        self._cut = {size for axis in reading.grid for size, constant in axis if constant}
        slices = (each.slice for each in ast.walk(function) if isinstance(each, ast.Subscript))
        self._has_tiles = any(
            isinstance(part, ast.Constant) and part.value is None for s in slices for part in ast.walk(s)
        )
        self._passed = [each.arg for each in function.args.args]
        self._most = max((len(each) for each in dims.values()), default=0)
        self._values: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._addresses: dict[str, str] = {}
        self._begun: set[str] = set()
        self._masks: set[str] = set()
        self.lines: list[str] = []
        self.stored: dict[str, str] = {}

    def run(self, statements: Sequence[ast.stmt]) -> None:
        """Translate statements one after the other."""
        for each in statements:
            if isinstance(each, ast.Assign) and len(each.targets) == 1 and isinstance(each.targets[0], ast.Name):
                self._assign(each.targets[0].id, each.value)
            elif isinstance(each, ast.AugAssign) and isinstance(each.target, ast.Name):
                self._augment(each.target.id, each)
            elif isinstance(each, ast.For):
                self._loop(each)
            elif isinstance(each, ast.Expr) and isinstance(each.value, ast.Call):
                self._effect(each.value)
            elif not (
                (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
                or (isinstance(each, ast.If) and all(isinstance(x, ast.Return) for x in each.body))
            ):
                raise _UnknownError

    def _loop(self, loop: ast.For) -> None:
        """Translate a loop over blocks as one block; one that changes what stood before it has no such meaning."""
        calls = [each for each in ast.walk(loop.iter) if isinstance(each, ast.Call)]
        steps = any(called(each) == "cdiv" or len(each.args) == 3 for each in calls)
        for each in ast.walk(loop):
            if isinstance(each, ast.Assign | ast.AugAssign):
                target = each.target if isinstance(each, ast.AugAssign) else each.targets[0]
                name = getattr(target, "id", "")
                reads = {part.id for part in ast.walk(each.value) if isinstance(part, ast.Name)}
                steps &= name not in self._values or (isinstance(each, ast.Assign) and name not in reads)
        if not steps:
            raise _UnknownError
        self.run(loop.body)

    def _assign(self, name: str, value: ast.expr) -> None:
        if self._is_begin(value):
            self._begun.add(name)
            return
        if tensor := self._tensor_of(value):
            self._addresses[name] = tensor
            return
        try:
            self._set(name, *self._expression(value))
        except _UnknownError:
            self._values.pop(name, None)  # an index or a mask; a value that needs it is unknown
            (self._masks.add if self._is_mask(value) else self._masks.discard)(name)
            calls = [each for each in ast.walk(value) if isinstance(each, ast.Call)]
            if any(called(e) in ("load", "dot", *_REDUCED) and isinstance(e.func, ast.Attribute) for e in calls):
                raise

    def _augment(self, name: str, statement: ast.AugAssign) -> None:
        if name in self._addresses or name in self._tensors:
            return
        text, dims = self._expression(statement.value)
        if name in self._begun and isinstance(statement.op, ast.Add):
            self._set(name, text, dims)
        else:
            added = ast.BinOp(ast.Name(name, ast.Load()), statement.op, statement.value)
            self._set(name, *self._expression(added))

    def _set(self, name: str, text: str, dims: tuple[str, ...]) -> None:
        local = local_name(name)
        if any(re.search(rf"\b{name}\b", each) for each in self.stored.values()):
            raise _UnknownError  # an output has the earlier value
        if text != local:
            self.lines.append(f"{local} = {_tidy(text)}")
        self._values[name] = local, dims
        self._begun.discard(name)

    def _effect(self, call: ast.Call) -> None:
        if called(call) in (
            "static_assert",
            "assume",
            "device_assert",
            "debug_barrier",
            "multiple_of",
            "max_contiguous",
        ):
            return
        if called(call) != "store":
            raise _UnknownError
        tensor = self._tensor_of(address_of(call))
        if not tensor or tensor in self.stored or not self._takes_all(call, 2):
            raise _UnknownError
        named = [each.value for each in call.keywords if each.arg == "value"]
        text, dims = self._expression((call.args[1:2] or named)[0])
        held = tuple(self._dims[tensor])
        if dims == (*held, "1"):
            text = f"({text}).squeeze(-1)"
        elif dims != held:
            raise _UnknownError
        self.stored[tensor] = _tidy(text)

    def _is_begin(self, value: ast.expr) -> bool:
        """Return whether a value is the zero that a loop adds to."""
        is_zeros = isinstance(value, ast.Call) and called(value) == "zeros"
        return is_zeros or (isinstance(value, ast.Constant) and value.value == 0)

    def _takes_all(self, call: ast.Call, position: int) -> bool:
        """Return whether the mask of an access, if it has one, leaves out what lies outside of the tensor alone."""
        masks = [*call.args[position : position + 1], *(each.value for each in call.keywords if each.arg == "mask")]
        return all(map(self._is_mask, masks))

    def _is_mask(self, node: ast.expr) -> bool:
        """Return whether a condition says that an index lies below a size."""
        node = bare(node)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd):
            return self._is_mask(node.left) and self._is_mask(node.right)
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Lt):
            names = [each.id for each in ast.walk(node.comparators[0]) if isinstance(each, ast.Name)]
            return any(name in self._sizes for name in names)
        return isinstance(node, ast.Name) and node.id in self._masks

    def _tensor_of(self, address: ast.expr) -> str:
        """Return the tensor that an address lies in; empty for anything else."""
        address = bare(address)
        if isinstance(address, ast.BinOp) and isinstance(address.op, ast.Add | ast.Sub):
            return self._tensor_of(address.left) or self._tensor_of(address.right)
        if isinstance(address, ast.Call) and called(address) in ("make_block_ptr", "make_tensor_descriptor", "advance"):
            return self._tensor_of(address_of(address))
        name = address.id if isinstance(address, ast.Name) else ""
        return self._addresses.get(name, name if name in self._tensors else "")

    def _expression(self, node: ast.expr) -> tuple[str, tuple[str, ...]]:
        """Return an expression of torch, and the sizes of its dimensions."""
        node = bare(node)
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            return repr(node.value), ()
        if isinstance(node, ast.Name):
            return self._named(node.id)
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return self._joined(_OPERATORS[type(node.op)], node.left, node.right)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            text, dims = self._expression(node.operand)
            return f"(-{text})", dims
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARED:
            return self._joined(_COMPARED[type(node.ops[0])], node.left, node.comparators[0])
        if isinstance(node, ast.Call):
            return self._call(node)
        raise _UnknownError

    def _named(self, name: str) -> tuple[str, tuple[str, ...]]:
        if name in self._values:
            return self._values[name]
        if name in self._sizes:
            return f'case["{name}"]', ()
        if name in self._passed and name not in self._tensors:
            return f'arguments["{name}"]', ()
        raise _UnknownError

    def _joined(self, operator: str, left: ast.expr, right: ast.expr) -> tuple[str, tuple[str, ...]]:
        (one, of_one), (other, of_other) = self._expression(left), self._expression(right)
        return f"({one} {operator} {other})", self._together(of_one, of_other)

    def _together(self, *parts: tuple[str, ...]) -> tuple[str, ...]:
        """Return the dimensions of values that torch broadcasts, the last ones first aligned."""
        widest = max(parts, key=len)
        for each in parts:
            if any(a not in (b, "1") and b != "1" for a, b in zip(reversed(each), reversed(widest), strict=False)):
                raise _UnknownError
        columns = [[p[-i] for p in parts if len(p) >= i] for i in range(len(widest), 0, -1)]
        return tuple(next((size for size in column if size != "1"), "1") for column in columns)

    def _call(self, call: ast.Call) -> tuple[str, tuple[str, ...]]:
        name = called(call)
        owner = getattr(bare(call.func.value), "id", "") if isinstance(call.func, ast.Attribute) else ""
        if name == "load" and self._takes_all(call, 1):
            return self._loaded(self._tensor_of(address_of(call)))
        if owner not in _MODULES:
            raise _UnknownError
        if name == "dot":
            return self._product(call)
        if name in ("trans", "cast"):
            return self._expression(call.args[0])
        if name in _REDUCED:
            return self._reduced(call)
        if name in _UNARY and len(call.args) == 1:
            text, dims = self._expression(call.args[0])
            return f"torch.{name}({text})", dims
        if name in ("maximum", "minimum") and len(call.args) == 2:
            (one, of_one), (other, of_other) = sorted(map(self._expression, call.args), key=lambda part: not part[1])
            if of_one and not of_other:
                return f"({one}).clamp({'min' if name == 'maximum' else 'max'}={other})", of_one
            return f"torch.{name}({one}, {other})", self._together(of_one, of_other)
        if name == "where" and len(call.args) == 3:
            return self._chosen(*call.args)
        raise _UnknownError

    def _reduced(self, call: ast.Call) -> tuple[str, tuple[str, ...]]:
        """Return a reduction of whole rows, which keeps the dimension."""
        text, dims = self._expression(call.args[0])
        given = [*call.args[1:2], *(each.value for each in call.keywords if each.arg == "axis")]
        axis = ast.unparse(given[0]) if given else "None"
        alone = len(dims) != self._most or len(dims) < 2 or "1" in dims or dims[-1] in self._cut
        if alone or axis not in (("1", "-1") if self._has_tiles else ("None", "0", "-1")):
            raise _UnknownError
        return f"({text}).{_REDUCED[called(call)]}(-1, keepdim=True)", (*dims[:-1], "1")

    def _chosen(self, condition: ast.expr, one: ast.expr, other: ast.expr) -> tuple[str, tuple[str, ...]]:
        """Return `torch.where`; the first value where the condition is a mask of what lies in the tensor."""
        try:
            text, dims = self._expression(condition)
        except _UnknownError:
            if not self._is_mask(condition):
                raise
            return self._expression(one)
        parts = [self._expression(each) for each in (one, other)]
        return f"torch.where({text}, {parts[0][0]}, {parts[1][0]})", self._together(dims, parts[0][1], parts[1][1])

    def _loaded(self, tensor: str) -> tuple[str, tuple[str, ...]]:
        """Return a whole tensor; numbers of rows stand as a column beside rows."""
        if not tensor or self._tensors[tensor].indexes or tensor in self.stored or self._tensors[tensor].added:
            raise _UnknownError
        dims = tuple(self._dims[tensor])
        text = f'arguments["{tensor}"].double()'
        if not all(dims):
            raise _UnknownError
        if len(dims) == 1 and self._most == 2 and dims[0] == next(d[0] for d in self._dims.values() if len(d) == 2):
            return f"{text}[:, None]", (*dims, "1")
        return text, dims

    def _product(self, call: ast.Call) -> tuple[str, tuple[str, ...]]:
        """Return a product of two matrices that share a dimension, whichever way they lie."""
        (a, of_a), (b, of_b) = (self._expression(each) for each in call.args[:2])
        shared = set(of_a) & set(of_b)
        if len(of_a) != 2 or len(of_b) != 2 or len(shared) != 1:
            raise _UnknownError
        (k,) = shared
        added = getattr(call.args[2], "id", "") if len(call.args) > 2 else ""
        if added not in ("", *self._begun):
            raise _UnknownError
        left, right = a if of_a[1] == k else f"{a}.T", b if of_b[0] == k else f"{b}.T"
        (m,), (n,) = set(of_a) - shared, set(of_b) - shared
        return f"({left} @ {right})", (m, n)


def _tidy(text: str) -> str:
    """Return an expression as formatters write it."""
    text = ast.unparse(ast.parse(text)).replace("'", '"')
    return re.sub(r"(?<![\w.)\]])([\w.]+) \*\* ([\w.]+)", r"\1**\2", text)
