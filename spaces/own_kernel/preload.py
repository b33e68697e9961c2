"""Import once, before builders are forked, everything that a first build would wait for."""

from gemmtune.spaces.triton_preload import preload

preload("gemmtune.spaces.own_kernel.build")
