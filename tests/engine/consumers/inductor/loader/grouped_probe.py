"""Probe for its own process: corpus_probe.py with grouped_modules.py, and binaries that link nowhere."""

import sys
from unittest.mock import patch

import corpus_probe
import torch
from grouped_modules import CASES


def main(export: str, *arms: str) -> None:
    sys.path.insert(0, export)
    from gemmtune_inductor import binaries

    corpus_probe.CASES = CASES
    unbacked = {"capture_dynamic_output_shape_ops": True}
    with patch.object(binaries, "link", lambda kernel, device: ""), torch._dynamo.config.patch(unbacked):
        corpus_probe.main(export, *arms)


if __name__ == "__main__":
    main(*sys.argv[1:])
