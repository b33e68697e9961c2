"""Imports before builders are forked, of everything that a first build would wait for. Imports Triton."""

from importlib import import_module
from threading import Thread

from triton.runtime.cache import triton_key


def preload(*modules: str) -> None:
    """Import modules, and compute once the hash of Triton that is in the keys of its caches.

    That takes 0.4 s for the 400 MB of libtriton, and more if 15 builders read it at the same time. A thread computes it
    during the imports. It has ended when this returns, because a process with a second thread must not fork.
    """
    hashing = Thread(target=triton_key)
    hashing.start()
    for module in (*modules, "triton.compiler.code_generator"):  # a build imports the last one only when it needs it
        import_module(module)
    hashing.join()
