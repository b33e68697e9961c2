"""Import once, before builders are forked, everything that a first build would wait for."""

from importlib import import_module
from threading import Thread

from triton.runtime.cache import triton_key

# As in spaces/inductor/preload.py: a hash of Triton's files takes 0.4 s. The thread has ended before a process forks.
_hashing = Thread(target=triton_key)
_hashing.start()
import_module("gemmtune.spaces.own_kernel.build")
import_module("triton.compiler.code_generator")
_hashing.join()
