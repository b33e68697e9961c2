"""Probe for its own process: corpus_probe.py with the products of quantised_modules.py."""

import sys

import corpus_probe
from quantised_modules import CASES

if __name__ == "__main__":
    corpus_probe.CASES = CASES
    corpus_probe.main(*sys.argv[1:])
