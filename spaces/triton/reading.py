"""Read a Triton kernel's arguments from its source: tensors with their shapes, sizes, strides and the grid."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

_MADE = ("make_block_ptr", "make_tensor_descriptor", "advance")
"""Functions of `triton.language` that make an address of another one."""

_LONGEST_SUFFIX = 3
"""Characters that the last part of a stride's name may have to name a size with its end, as in `stride_am`."""


@dataclass(slots=True)
class Pointer:
    """Tensor that a kernel takes, as far as its accesses show."""

    loaded: bool = False
    stored: bool = False
    added: bool = False
    """Whether an atomic operation works on it."""
    indexes: str = ""
    """Size that its values are places below, if they are places in another tensor."""
    dims: dict[str, str] = field(default_factory=dict)
    """Size of each dimension by the argument that is its stride, or `1` for the last; empty where it is not known."""


@dataclass(slots=True)
class Reading:
    """Arguments of a kernel by what they are, and the blocks to launch."""

    pointers: dict[str, Pointer] = field(default_factory=dict)
    sizes: list[str] = field(default_factory=list)
    """Sizes that the shapes have: arguments of the kernel, and `rows` where it takes none."""
    grid: list[list[tuple[str, str]]] = field(default_factory=list)
    """Factors of the blocks along each axis: a size, and the constant that divides it or nothing; empty if unknown."""
    covering: dict[str, str] = field(default_factory=dict)
    """Constants that are the width of a block which holds a whole size, with this size."""


def read_kernel(source: str, constants: Iterable[str], tuned: Iterable[str]) -> Reading:
    """Return what a kernel's source says.

    Args:
        source: source of the function, from its `def` on.
        constants: constexpr arguments.
        tuned: those of them that a config gives.
    """
    return _Reader(source, frozenset(constants), frozenset(tuned)).reading()


class _Reader:
    """Walk through a kernel's statements; variables stand for all values that they are given."""

    def __init__(self, source: str, constants: frozenset[str], tuned: frozenset[str]) -> None:
        function = ast.parse(source).body[0]
        assert isinstance(function, ast.FunctionDef)
        self._tree, self._constants, self._tuned = function, constants, tuned
        self._passed = [each.arg for each in function.args.args if each.arg not in constants]
        self._values: defaultdict[str, list[ast.expr]] = defaultdict(list)
        self._loops: defaultdict[str, list[ast.expr]] = defaultdict(list)
        self._bounds: dict[str, str] = {}
        self._tensors: set[str] = set()
        self._cuts: list[tuple[ast.expr, str, str]] = []
        self._found = Reading()
        for node in ast.walk(function):
            self._note(node)

    def reading(self) -> Reading:
        """Return what the source says."""
        calls = [node for node in ast.walk(self._tree) if isinstance(node, ast.Call)]
        moves = [call for call in calls if called(call) in ("load", "store", *_MADE[:2]) or "atomic" in called(call)]
        self._tensors = {self._tensor_of(self._terms(address_of(call), set())) for call in moves}
        for call in moves:
            self._access(call, called(call))
        self._found.grid = self._grid()
        for name, size in self._bounds.items():
            reached = list(self._reached([ast.Name(name, ast.Load())]))
            spans = [each.args[-1] for each in reached if isinstance(each, ast.Call) and called(each) == "arange"]
            moving = any(_axis(each) is not None or getattr(each, "id", "") in self._loops for each in reached)
            for each in spans if size in self._found.sizes and not moving else ():
                if isinstance(each, ast.Name):
                    self._found.covering[each.id] = size
        return self._found

    def _note(self, node: ast.AST) -> None:
        """Keep what a variable is given, and what bounds it from above."""
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    self._values[target.id].append(node.value)
        elif isinstance(node, ast.AugAssign | ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            self._values[node.target.id].append(node.value)
        elif isinstance(node, ast.For) and isinstance(node.target, ast.Name) and isinstance(node.iter, ast.Call):
            self._loops[node.target.id] += node.iter.args
            if size := self._size_in(node.iter.args[:2][-1:]):
                self._bounds[node.target.id] = size
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Lt):
            size = self._size_in(node.comparators)
            for each in ast.walk(node.left) if size else ():
                if isinstance(each, ast.Name) and each.id not in (*self._passed, *self._constants):
                    self._bounds.setdefault(each.id, size)

    def _size_in(self, nodes: Sequence[ast.expr]) -> str:
        """Return the first argument of the kernel that expressions name; empty for none."""
        known = (*self._passed, *(name for name in self._constants if name not in self._tuned))
        return next((e.id for n in nodes for e in ast.walk(n) if isinstance(e, ast.Name) and e.id in known), "")

    def _access(self, call: ast.Call, name: str) -> None:
        """Note an access: the tensor, and the size of each dimension that the address walks along."""
        terms = list(self._terms(address_of(call), set()))
        tensor = self._tensor_of(terms)
        if not tensor:
            return
        pointer = self._found.pointers.setdefault(tensor, Pointer())
        added = "atomic" in name
        pointer.added |= added
        pointer.stored |= added or name == "store"
        pointer.loaded |= added or name == "load"
        walked: defaultdict[str, list[ast.expr]] = defaultdict(list)
        for term in terms:
            if isinstance(term, ast.Name) and term.id == tensor:
                continue
            factors = list(_factors(term))
            known = [f.id for f in factors if isinstance(f, ast.Name) and f.id in self._passed]
            stride = next((name for name in known if "stride" in name.lower()), known[0] if known else "1")
            walked[stride] += [f for f in factors if not (isinstance(f, ast.Name) and f.id == stride)]
        found = {
            stride: self._size_of(index, stride) or self._places(index, tensor) for stride, index in walked.items()
        }
        shape = [self._size_in([each]) for each in _given(call, 1, "shape")] if name in _MADE else []
        for each, size in zip(_given(call, 2, "strides") if shape else (), shape, strict=False):
            found[getattr(each, "id", "1")] = self._sized(size) if size else ""
        if name == "make_block_ptr":
            self._cut(_given(call, 3, "offsets"), shape, _given(call, 4, "block_shape"))
        for made in self._values[getattr(address_of(call), "id", "")] if name in ("load", "store") else ():
            if isinstance(made, ast.Call) and called(made) == "make_tensor_descriptor":
                sizes = [self._size_in([each]) for each in _given(made, 1, "shape")]
                self._cut(_given(call, 0, "offsets"), sizes, _given(made, 3, "block_shape"))
        for stride, size in found.items():
            pointer.dims[stride] = pointer.dims.get(stride) or size

    def _cut(self, offsets: Sequence[ast.expr], sizes: Sequence[str], widths: Sequence[ast.expr]) -> None:
        """Note that offsets cut sizes into blocks of these widths."""
        for offset, size, width in zip(offsets, sizes, widths, strict=False):
            if size and isinstance(width, ast.Name):
                self._cuts.append((offset, size, width.id))

    def _tensor_of(self, terms: Iterable[ast.expr]) -> str:
        """Return the argument that an address begins with; empty where there is none."""
        return next((t.id for t in terms if isinstance(t, ast.Name) and t.id in self._passed), "")

    def _terms(self, node: ast.expr, seen: set[str]) -> Iterator[ast.expr]:
        """Yield the addends of an address, those of variables that hold addresses included."""
        node = bare(node)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            yield from self._terms(node.left, seen)
            yield from self._terms(node.right, seen)
        elif isinstance(node, ast.Call) and called(node) in _MADE:
            yield from self._terms(address_of(node), seen)
        elif isinstance(node, ast.Name) and node.id not in seen and self._holds_address(node.id):
            seen.add(node.id)
            if node.id in self._passed:
                yield node
            for value in self._values[node.id]:
                yield from self._terms(value, seen)
        elif not (isinstance(node, ast.Name) and node.id in seen):
            yield node

    def _holds_address(self, name: str, seen: set[str] | None = None) -> bool:
        """Return whether a variable is made of an argument and something added; `seen` ones were asked for before."""
        if name in self._passed:
            return True
        seen = set() if seen is None else seen
        seen.add(name)
        if any(isinstance(value, ast.Call) and called(value) in _MADE for value in self._values[name]):
            return True
        added = [each for value in self._values[name] for each in _addends(value)]
        names = [each.id for each in added if isinstance(each, ast.Name)]
        return any(each not in seen and self._holds_address(each, seen) for each in names)

    def _size_of(self, index: Sequence[ast.expr], stride: str) -> str:
        """Return the size of the dimension that an index walks along; empty where the source does not say it."""
        reached = list(self._reached(index))
        for each in reached:
            if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Mod) and (size := self._size_in([each.right])):
                return self._sized(size)
        names = [each.id for each in reached if isinstance(each, ast.Name)]
        if bound := next((self._bounds[name] for name in names if name in self._bounds), ""):
            return self._sized(bound)
        last = stride.lower().rpartition("_")[2]
        sizes = [name for name in self._passed if name != stride and name not in self._tensors]
        if named := [name for name in sizes if len(last) <= _LONGEST_SUFFIX and last.endswith(name.lower())]:
            return self._sized(named[0])
        spans = [each for each in reached if isinstance(each, ast.Call) and called(each) == "arange"]
        if not spans:
            axes = [axis for each in reached if (axis := _axis(each)) is not None]
            return self._sized(self._rows(axes[0])) if axes else ""
        size = self._size_in(spans[0].args)
        return self._sized(size) if size else ""

    def _places(self, index: Sequence[ast.expr], tensor: str) -> str:
        """Return a new size for the dimension of a tensor in which values of another one are places."""
        values = [bare(each) for name in index for each in self._values[getattr(name, "id", "")]]
        for load in (each for each in (*index, *values) if isinstance(each, ast.Call) and called(each) == "load"):
            if places := self._tensor_of(self._terms(address_of(load), set())):
                self._found.pointers.setdefault(places, Pointer()).indexes = f"{tensor}_rows"
                return self._sized(f"{tensor}_rows")
        return ""

    def _sized(self, size: str) -> str:
        if size not in self._found.sizes:
            self._found.sizes.append(size)
        return size

    def _rows(self, axis: int) -> str:
        """Return the size that the blocks along an axis count one by one."""
        return f"rows_{axis}" if axis else "rows"

    def _reached(self, nodes: Sequence[ast.expr]) -> Iterator[ast.AST]:
        """Yield the parts of expressions and of what the variables in them are given; a load's tensor is an index."""
        waiting: list[ast.AST] = list(nodes)
        seen = set[str]()
        while waiting:
            node = waiting.pop(0)
            if isinstance(node, ast.Call) and called(node) == "load":
                continue
            yield node
            waiting += ast.iter_child_nodes(node)
            if isinstance(node, ast.Name) and node.id not in seen:
                seen.add(node.id)
                waiting += [*self._values.get(node.id, ()), *self._loops.get(node.id, ())]

    def _grid(self) -> list[list[tuple[str, str]]]:
        """Return the factors of the blocks along each axis."""
        calls = [node for node in ast.walk(self._tree) if isinstance(node, ast.Call)]
        axes = sorted({axis for call in calls if (axis := _axis(call)) is not None})
        if not axes or any(called(call) == "num_programs" for call in calls):
            return [[] for _ in axes] or [[]]
        loops = {id(each) for node in ast.walk(self._tree) if isinstance(node, ast.For) for each in ast.walk(node.iter)}
        cuts = [call for call in calls if called(call) == "cdiv" and id(call) not in loops]
        divided = [(self._size_in(_given(call, 0, "x")), _given(call, 1, "div")) for call in cuts]
        tiles = dict.fromkeys((size, width.id) for size, by in divided for width in by if isinstance(width, ast.Name))
        if len(axes) == 1 and len(tiles) > 1:
            return [list(tiles)]
        return [self._blocks(axis) for axis in range(axes[-1] + 1)]

    def _blocks(self, axis: int) -> list[tuple[str, str]]:
        """Return the factors of the blocks along an axis that one size is cut along."""
        holders = {name for name, values in self._values.items() for each in values if _axis(each) == axis}
        cut = [(ast.Name(name, ast.Load()), size, "") for name, size in self._bounds.items()]
        for offset, size, width in (*self._cuts, *cut):
            for each in self._reached([offset]):
                if not (isinstance(each, ast.BinOp) and isinstance(each.op, ast.Mult)):
                    continue
                sides = [bare(each.left), bare(each.right)]
                constant = next((name for side in sides if (name := getattr(side, "id", "")) in self._constants), "")
                is_this = any(_axis(side) == axis or getattr(side, "id", "") in holders for side in sides)
                if is_this and (constant if not width else constant == width):
                    return [(size, constant)]
        rows = self._rows(axis)
        return [(rows, "")] if rows in self._found.sizes else []


def address_of(call: ast.Call) -> ast.expr:
    """Return the address that a call of `tl.load` or the like has, or the descriptor whose method it is."""
    if isinstance(call.func, ast.Attribute) and getattr(call.func.value, "id", "tl") not in ("tl", "language"):
        return call.func.value
    return (_given(call, 0, "base") or _given(call, 0, "pointer") or [ast.Constant(0)])[0]


def _given(call: ast.Call, position: int, name: str) -> list[ast.expr]:
    """Return an argument of a call; the elements of one that is a list."""
    found = [each.value for each in call.keywords if each.arg == name] or call.args[position : position + 1]
    return list(found[0].elts) if found and isinstance(found[0], ast.List | ast.Tuple) else found


def _factors(node: ast.expr) -> Iterator[ast.expr]:
    node = bare(node)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        yield from _factors(node.left)
        yield from _factors(node.right)
    else:
        yield node


def _addends(node: ast.expr) -> Iterator[ast.expr]:
    node = bare(node)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        yield from _addends(node.left)
        yield from _addends(node.right)
    else:
        yield node


def bare(node: ast.expr) -> ast.expr:
    """Return an expression without new axes, `[:, None]`, and without conversions, `.to(tl.int64)`."""
    while True:
        if isinstance(node, ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "to":
            node = node.func.value
        else:
            return node


def called(call: ast.Call) -> str:
    """Return the last part of a called function's name, `arange` of `tl.arange`."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _axis(node: ast.AST) -> int | None:
    """Return the axis of a call of `tl.program_id`; None for anything else."""
    node = bare(node) if isinstance(node, ast.expr) else node
    if not (isinstance(node, ast.Call) and called(node) == "program_id"):
        return None
    given = [*node.args, *(each.value for each in node.keywords if each.arg == "axis")]
    return given[0].value if given and isinstance(given[0], ast.Constant) and isinstance(given[0].value, int) else 0
