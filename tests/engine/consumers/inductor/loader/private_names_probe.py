"""Probe for its own process, without a GPU: private names of torch, hidden from the exported loader one after another.

A name is hidden from the loader alone, as if torch had renamed it with all that uses it: torch itself still compiles.
The names are read off the loader's text: what it asks torch's modules for, and the attributes that it uses on them.

Argument: the folder of an export. Prints one JSON object: for each name that is hidden, and each function that takes
other arguments than the loader gives it, what `install` did and how the products of a model were lowered.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import functools
import gc
import importlib
import inspect
import itertools
import json
import re
import sys
import types
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from inductor_probe import TuningError, fake_h200, in_thread, refuse_to_tune
from torch._dynamo.source import ConstantSource
from torch._inductor import config
from torch._inductor.choices import InductorChoices
from torch._inductor.codegen.triton import TritonKernel, TritonScheduling
from torch._inductor.debug import DebugContext
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.fx_passes import pad_mm
from torch._inductor.graph import GraphLowering
from torch._inductor.kernel import bmm, mm
from torch._inductor.sizevars import SizeVarAllocator
from torch._inductor.virtualized import V
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

NAME, REPORT = "gemmtune_inductor", "gemmtune_report"
PASSED_ON = ("finalize", "run", "codegen_kernel")
"""Methods that the loader calls with the arguments that it is given."""
WRITTEN_IN_PYTHON = 1 << 9  # flag of a type whose attributes can be set
FURTHER = (GraphLowering, ShapeEnv, SizeVarAllocator)
"""Classes that the loader uses and does not name."""


def products(x, w, r, s):
    fused = torch.relu(x @ w.t()) * r  # a row with this epilogue
    biased = torch.addmm(s, x, w.t())  # a row
    without = torch.relu(x.t() @ r)  # no row
    return fused, biased, without


def ranged(y, w):
    return torch.relu(y @ w.t())  # a range of a dynamic m


def binary(x, u):
    return torch.relu(x @ u.t())  # a row of a binary


def grouped(x, experts, ends):
    return torch._grouped_mm(x, experts, offs=ends)  # no product to Inductor


def convolved(image, taps, s):
    return torch.conv2d(image, taps, s)  # the row of the addmm


MODELS = (products, ranged, binary, grouped, convolved)


class Watch:
    """Attribute of torch that the loader may use: noted, hidden from it, or refusing its arguments.

    Attributes:
        steps: steps of `tried` that asked for it: `install`, models that were lowered, and models that were generated.
    """

    step = ()  # now
    placed: Callable[[], AbstractContextManager[object]]

    def __init__(self, owner, name):
        self.owner, self.name, self.mode, self.steps = owner, name, "", set()
        self.is_called = inspect.isroutine(inspect.unwrap(getattr(owner, name, None)))

    def answers(self):
        """Return whether torch's own answer is to be given; fail if the loader must not see the attribute."""
        frame = sys._getframe(2)
        while frame is not None and frame.f_globals is globals():
            frame = frame.f_back
        if frame is None or frame.f_globals.get("__name__", "").partition(".")[0] not in (NAME, REPORT):
            return True
        self.steps.add(Watch.step)
        if self.mode == "hidden":
            raise AttributeError(f"{self.owner!r} has no attribute {self.name!r}", name=self.name)
        return self.mode != "refusing"

    @contextlib.contextmanager
    def on(self, mode):
        self.mode = mode
        with self.placed():
            yield


class OfClass(Watch):
    """Attribute that a class defines."""

    def placed(self):
        original = vars(self.owner)[self.name]
        get = getattr(type(original), "__get__", lambda its, *_: its)

        class Attribute:
            def __get__(_, instance, owner=None):  # noqa: N805
                return get(original, instance, owner) if self.answers() else refusing

        if hasattr(original, "__set__"):
            setattr(Attribute, "__set__", lambda _, instance, value: original.__set__(instance, value))  # noqa: B010
        return replaced(self.owner, self.name, Attribute())


class OfInstance(Watch):
    """Attribute that a class sets in its instances."""

    def placed(self):
        original = self.owner.__getattribute__

        def found(instance, name):
            return original(instance, name) if name != self.name or self.answers() else refusing

        return replaced(self.owner, "__getattribute__", found)


class OfModule(Watch):
    """Attribute of a module, which the loader gets without it; any model's lowering may ask for it."""

    def __init__(self, owner, name):
        super().__init__(owner, name)
        self.steps |= {("install",), *(("lower", model) for model in MODELS)}

    def placed(self):
        class Module(types.ModuleType):
            def __getattribute__(_, name):  # noqa: N805
                return getattr(self.owner, name) if name != self.name or self.answers() else refusing

            def __setattr__(_, name, value):  # noqa: N805
                if name != self.name or self.mode != "hidden":
                    setattr(self.owner, name, value)

        package, _, short = self.owner.__name__.rpartition(".")
        return replaced(sys.modules[package], short, Module(short))


class Imported(Watch):
    """Name that the loader asks a module of torch for."""

    def __init__(self, module, name):
        super().__init__(importlib.import_module(module), name)
        self.steps.add(("install",))

    def refused(self, original):
        def refused(*args, **kwargs):
            return (original if self.answers() else refusing)(*args, **kwargs)

        return refused

    @contextlib.contextmanager
    def placed(self):
        submodule = {f"{self.owner.__name__}.{self.name}": None}  # a package is asked again for its modules
        with contextlib.ExitStack() as stack:
            if self.mode == "refusing" or (self.mode == "noted" and self.is_called):
                original = getattr(self.owner, self.name)
                stack.enter_context(replaced(self.owner, self.name, self.refused(original)))
            elif self.mode == "hidden":
                if submodule.keys() & sys.modules.keys():
                    stack.enter_context(patch.dict(sys.modules, submodule))
                stack.enter_context(replaced(self.owner, self.name))
            yield


@contextlib.contextmanager
def replaced(owner, name, *value):
    """Set an attribute, or delete it without a value, and put it back as it was."""
    had, before = name in vars(owner), vars(owner).get(name)
    setattr(owner, name, *value) if value else delattr(owner, name)
    try:
        yield
    finally:
        setattr(owner, name, before) if had else delattr(owner, name)


def refusing(*_, **__):
    raise TypeError("it takes other arguments")


def watches(text):
    """Return a watch for all that a loader's text may use of torch's modules and classes."""
    tree: Any = ast.parse(text)
    asked = {
        target.id: (node.value.args[0].value, name.value)
        for node in tree.body
        if getattr(getattr(getattr(node, "value", None), "func", None), "id", "") == "private"
        for target, name in zip(getattr(node.targets[0], "elts", node.targets), node.value.args[1:], strict=True)
    }
    values = {name: getattr(__import__(where[0], fromlist=where[1:]), where[1]) for name, where in asked.items()}
    nodes = list(ast.walk(tree))
    uses = [(getattr(node.value, "id", ""), node.attr) for node in nodes if isinstance(node, ast.Attribute)]
    calls = [node for node in nodes if isinstance(node, ast.Call) and getattr(node.func, "id", "").endswith("attr")]
    uses += [(getattr(c.args[0], "id", ""), c.args[1].value) for c in calls if isinstance(c.args[1], ast.Constant)]
    names = sorted({name for _, name in uses if not name.startswith("__")})
    for_types = (node.body for node in tree.body if isinstance(node, ast.If))
    typed = [
        getattr(importlib.import_module(line.module), each.name)
        for line in itertools.chain.from_iterable(for_types)
        if isinstance(line, ast.ImportFrom) and line.module.startswith("torch.")
        for each in line.names
    ]
    found = [Imported(*where) for where in asked.values()]
    for bound, name in set(uses):
        if isinstance(values.get(bound), types.ModuleType) and hasattr(values[bound], name):
            found.append(OfModule(values[bound], name))
    for value in (*values.values(), *typed, *FURTHER):
        owner = value if isinstance(value, type) else type(value)
        for name in names if owner.__module__.startswith("torch") else ():
            kind = next((each for each in owner.__mro__ if name in vars(each)), None)
            if kind is not None and kind.__module__.startswith("torch"):
                found += [OfClass(kind, name)] if kind.__flags__ & WRITTEN_IN_PYTHON else []
            elif kind is None and name in set_in(inspect.getfile(owner)):
                found.append(OfInstance(owner, name))
    return list({(type(each), each.owner, each.name): each for each in found}.values())


@functools.cache
def set_in(file):
    """Return the attributes that a file's classes may set in their instances."""
    return set(re.findall(r"\bself\.(\w+)", Path(file).read_text()))


@functools.cache
def traced(model):
    """Return a model as a graph of ATen's operators, with its inputs and their mode."""
    shapes = {"x": (64, 256), "w": (96, 256), "r": (64, 96), "s": (96,), "u": (128, 256)}
    shapes |= {"experts": (2, 256, 96), "ends": (2,), "image": (1, 256, 8, 8), "taps": (96, 256, 1, 1)}
    env = ShapeEnv()
    with FakeTensorMode(shape_env=env, allow_non_fake_inputs=True) as mode:
        if model is ranged:
            m = env.create_symintnode(env.create_symbol(40, ConstantSource("m"), DimDynamic.DYNAMIC), hint=40)
            shapes["y"] = (m, 256)
        inputs = []
        for name in inspect.signature(model).parameters:
            dtype = torch.int32 if name == "ends" else torch.bfloat16
            made = torch.empty(shapes[name], dtype=dtype, device="cuda:0")
            inputs.append(made.to(memory_format=torch.channels_last) if made.dim() == 4 else made)
        return make_fx(model, decomposition_table=select_decomp_table())(*inputs), inputs, mode


def as_traced(env):
    """Return the sizes of a graph as they were traced, apart from those that other lowerings have guarded."""
    own = copy.copy(env)
    vars(own).update({name: copy.copy(it) for name, it in vars(env).items() if isinstance(it, dict | list | set)})
    return own


def lowered(options, models=MODELS, *, generates=MODELS):
    """Lower models; return how many choices each product had, and the kernels of those whose code is generated."""
    found: dict[str, Any] = {"counts": {}, "kernels": [], "binaries": 0}

    def listening(module, counts):
        original = module.autotune_select_algorithm

        def select(name, choices, *args, **kwargs):
            counts.append(len(choices))
            return original(name, choices, *args, **kwargs)

        return patch.object(module, "autotune_select_algorithm", select)

    def define(_, source, *__, **___):
        found["kernels"].append("template" if "triton_heuristics.template" in source else "pointwise")
        return f"kernel{len(found['kernels'])}"

    with contextlib.ExitStack() as stack:
        stack.enter_context(fake_h200())
        stack.enter_context(config.patch(options))
        tuning = "torch._inductor.select_algorithm.AlgorithmSelectorCache.do_autotuning"
        stack.enter_context(patch(tuning, refuse_to_tune))
        stack.enter_context(patch.object(TritonScheduling, "define_kernel", define))
        stack.enter_context(patch("torch._inductor.scheduler.has_triton", lambda: True))
        stack.enter_context(V.set_debug_handler(DebugContext()))
        for model in models:
            module, inputs, mode = traced(model)
            counts = found["counts"][model.__name__] = []
            with V.set_fake_mode(mode), listening(mm, counts), listening(bmm, counts):
                Watch.step = ("lower", model)
                module = torch.fx.GraphModule(module, copy.deepcopy(module.graph))
                graph = GraphLowering(module, example_inputs=inputs, shape_env=as_traced(mode.shape_env))
                with V.set_graph_handler(graph):
                    graph.run(*inputs)
                    Watch.step = ("generate", model)
                    code = graph.codegen()[0] if model in generates else ""
            found["binaries"] += len(re.findall(r"extern_kernels\.gemmtune_\w+\(", getattr(code, "value", code)))
    return {**found, "kernels": sorted(found["kernels"])}


def loaded():
    """Return the loader, imported anew."""
    for name in [each for each in sys.modules if each.partition(".")[0] in (NAME, REPORT)]:
        del sys.modules[name]
    return importlib.import_module(NAME)


def tried(models=MODELS, *, generates=MODELS):
    """Return what the loader did under a torch as it is made now."""
    Watch.step = ("install",)
    own = InductorChoices.get_template_configs, TritonKernel.codegen_kernel, pad_mm.should_pad
    found = {"step": "import"}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            loader = loaded()
            found["step"] = "install"
            binaries: Any = sys.modules[f"{NAME}.binaries"]
            binaries.difference = lambda *_, **__: ""  # the packages that run the binary may be missing here
            binaries.link = lambda *_: ""  # there is no driver here
            loader.install(policy="ignore")
            found["options"] = loader.options()
            found["is_stock"] = type(V.choices) is InductorChoices
            found["step"] = "lower"
            if found["is_stock"]:
                assert own == (InductorChoices.get_template_configs, TritonKernel.codegen_kernel, pad_mm.should_pad)
            else:
                found |= lowered(found["options"], models, generates=generates)
            found["step"] = "end"
            found["report"] = str(loader.report())
        except (Exception, TuningError) as error:
            found["error"] = f"{type(error).__name__}: {error}"[:800]
        finally:
            loader.uninstall()
    return {**found, "warnings": said(caught)}


def is_gone():
    return type(V.choices).get_template_configs is InductorChoices.get_template_configs


def said(caught):
    return [str(each.message) for each in caught if "gemmtune" in str(each.message)]


def main(export):
    sys.path.insert(0, export)
    files = [path for package in (NAME, REPORT) for path in sorted(Path(export, package).glob("*.py"))]
    every = watches("\n".join(path.read_text() for path in files))
    gc.disable()  # there is little to find, among all that torch imports
    report = {"stock": lowered({}), "found": {}}
    with contextlib.ExitStack() as stack:
        for each in every:
            stack.enter_context(each.on("noted"))
        report["with_table"] = tried()
    for each in (watch for watch in every if watch.steps):
        name = f"{getattr(each.owner, '__qualname__', each.owner.__name__)}.{each.name}"
        generates = [model for model in MODELS if ("generate", model) in each.steps]
        models = [model for model in MODELS if model in generates or ("lower", model) in each.steps] or MODELS[:1]
        for mode in ("hidden", "refusing")[: 1 + (each.is_called and each.name not in PASSED_ON)]:
            with each.on(mode):
                found = tried(models, generates=generates)
            report["found"][f"{name} {mode}"] = {**found, "is_gone": is_gone() and in_thread(is_gone)}
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
