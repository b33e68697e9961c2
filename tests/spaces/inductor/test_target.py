"""What a build sets around torch's compiler."""

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")
bars = pytest.importorskip("tqdm", reason="torch draws no bars here")

from gemmtune.spaces.inductor.target import environment  # noqa: E402 (torch is there)


def test_the_bars_of_torch_lock_no_other_process(tmp_path, monkeypatch):
    monkeypatch.setattr(bars.std.TqdmDefaultWriteLock, "__init__", None)  # it makes a lock of processes
    monkeypatch.delattr(bars.tqdm, "_lock", raising=False)
    with environment(str(tmp_path)):
        bars.tqdm(total=1, disable=True).close()
