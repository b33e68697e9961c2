"""Import and compute once, before builders are forked, everything that a first build would wait for."""

from importlib import import_module

from gemmtune.spaces.triton_source.preloading import preload

preload(
    "gemmtune.spaces.inductor.build", "sympy.tensor.tensor"
)  # a build imports sympy's 80 modules when it needs them
import_module("torch._inductor.codegen.common").init_backend_registration()
