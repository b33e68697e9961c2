"""Made once, where it is imported, and not by each builder that is forked from there: what a first build waits for."""

from __future__ import annotations

from importlib import import_module
from threading import Thread

from triton.runtime.cache import triton_key

# Inductor and Triton put a hash of Triton into their caches' keys, and remember it: 0.4 s for the 400 MB of libtriton,
# and more where 15 builders read them side by side. It runs beside the imports, which it leaves the interpreter to, and
# has ended when this module is there: a process with a second thread is not one to fork.
_hashing = Thread(target=triton_key)
_hashing.start()
# The last three are what a build imports where it needs it: 80 modules.
import_module("gemmtune.spaces.inductor.build")
import_module("triton.compiler.code_generator")
import_module("sympy.tensor.tensor")
import_module("torch._inductor.codegen.common").init_backend_registration()
_hashing.join()
