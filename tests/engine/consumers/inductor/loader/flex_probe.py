"""Probe for its own process: corpus_probe.py with flex_modules.py, and the texts of the choices."""

import sys

import corpus_probe
from flex_modules import CASES


class Seen(corpus_probe.Seen):
    """What Inductor did for one case, with the options of each choice."""

    def __init__(self) -> None:
        super().__init__()
        self.described: list[list[str]] = []

    def _selecting(self, select):
        selecting = super()._selecting(select)

        def described(cache, name, choices, *arguments, **settings):
            self.described.append([each.description for each in choices])
            return selecting(cache, name, choices, *arguments, **settings)

        return described


if __name__ == "__main__":
    corpus_probe.CASES, corpus_probe.Seen = CASES, Seen
    corpus_probe.main(*sys.argv[1:])
