"""Import and compute once, before builders are forked, everything that a first build would wait for."""

from importlib import import_module
from threading import Thread

from triton.runtime.cache import triton_key

# Inductor and Triton put a hash of Triton into the keys of their caches: 0.4 s for the 400 MB of libtriton, and more if
# 15 builders read it at the same time. A thread computes it during the imports. It has ended when this module is
# imported, because a process with a second thread must not fork.
_hashing = Thread(target=triton_key)
_hashing.start()
# A build imports the last three, which are 80 modules, only when it needs them.
import_module("gemmtune.spaces.inductor.build")
import_module("triton.compiler.code_generator")
import_module("sympy.tensor.tensor")
import_module("torch._inductor.codegen.common").init_backend_registration()
_hashing.join()
