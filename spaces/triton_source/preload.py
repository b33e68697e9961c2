"""Import once, before builders are forked, everything that a first build would wait for."""

from gemmtune.spaces.triton_source.preloading import preload

preload("gemmtune.spaces.triton_source.build")
