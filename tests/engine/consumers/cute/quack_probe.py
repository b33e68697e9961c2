"""Probe for its own process, which cannot import gemmtune: QuACK's configs for CPU tensors from exported tables.

Argument: the folder of an export for an H200. Prints one JSON object. Nothing is launched: what would launch records
its arguments instead.
"""

from __future__ import annotations

import json
import sys
import warnings
from dataclasses import asdict
from pathlib import Path
from unittest.mock import patch

import torch


def operands(m, n, k, dtype=torch.bfloat16, layout="nt"):
    a = torch.empty(m, k, dtype=dtype) if layout[0] == "n" else torch.empty(k, m, dtype=dtype).t()
    b = torch.empty(k, n, dtype=dtype) if layout[1] == "n" else torch.empty(n, k, dtype=dtype).t()
    return a, b


def main(folder):
    sys.modules["gemmtune"] = None  # any import of it fails from here on
    sys.path.insert(0, folder)
    report = {}
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        import gemmtune_quack

        table = gemmtune_quack.QuackMap()
    report["loading"] = [str(w.message) for w in given if w.category.__name__ == "TableWarning"]

    def config(*args, **kwargs):
        found = table.config(*operands(*args), **kwargs)
        return None if found is None else {"type": type(found).__qualname__, **asdict(found)}

    report["hit"] = config(512, 1024, 256)
    report["fp16_tn"] = config(512, 1024, 256, torch.float16, "tn")
    report["rounded"] = config(300, 1024, 256)
    report["misses"] = [
        config(64, 1024, 256),
        config(512, 1024, 256, torch.bfloat16, "nn"),
        config(512, 1024, 256, out_dtype=torch.float32),
        table.config(*(x.unsqueeze(0) for x in operands(512, 1024, 256))),
        table.config(operands(1024, 1024, 512)[0][::2, ::2], operands(1, 1024, 256)[1]),
    ]

    calls = []

    def pinned(a, b, out, **kwargs):
        calls.append(["pinned", tuple(out.shape), str(out.dtype), kwargs["config"].tile_n, kwargs["split_k"]])

    def default(a, b, **kwargs):
        calls.append(["default", tuple(kwargs["out"].shape), kwargs["tuned"]])

    with patch.object(gemmtune_quack.gemm_tuned, "fn", pinned), patch.object(gemmtune_quack, "gemm", default):
        out = torch.empty(512, 1024, dtype=torch.bfloat16)
        report["returns_out"] = table.gemm(*operands(512, 1024, 256), out=out) is out
        report["allocates"] = tuple(table.gemm(*operands(512, 1024, 256)).shape)
        table.gemm(*operands(64, 1024, 256))
        table.gemm(*operands(512, 1024, 256), out=torch.empty(1024, 512, dtype=torch.bfloat16).t())
    report["calls"] = calls

    file = Path(folder) / "cute_table.json"
    content = json.loads(file.read_text())
    next(iter(content["rows"]["quack_gemm"].values()))["time_ns"] = 1.0
    report["refusals"] = {}
    broken = Path(folder) / "broken.json"
    for name, text in {"edited": json.dumps(content), "truncated": file.read_text()[:-9], "other": "{}"}.items():
        broken.write_text(text)
        try:
            gemmtune_quack.QuackMap(broken)
        except (TypeError, ValueError) as error:
            report["refusals"][name] = str(error)
    with patch.object(gemmtune_quack, "fields", lambda kind: ()):
        try:
            gemmtune_quack.QuackMap(file)
        except (TypeError, ValueError) as error:
            report["refusals"]["older_quack"] = str(error)
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
