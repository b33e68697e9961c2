"""Saving and calling a CuTe kernel, with a stand-in for the DSL: it compiles nothing and links nothing."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from gemmtune.engine.records.artifact import Resources  # noqa: E402
from gemmtune.engine.seams.space import BuildError  # noqa: E402
from gemmtune.spaces.cute import artifact  # noqa: E402

STORED = """
    %7 = llvm.mlir.constant({bytes} : i64) : i64
    %8 = llvm.getelementptr %3[0, 2] : (!llvm.ptr) -> !llvm.ptr, !llvm.struct<(array<3 x i32>, array<3 x i32>, i64, ptr, ptr, i32)>
    llvm.store %7, %8 : i64, !llvm.ptr
"""  # noqa: E501 (the DSL's text)
OTHER = "    %9 = llvm.mlir.constant(99 : i64) : i64\n    llvm.store %9, %4 : i64, !llvm.ptr\n"


@pytest.mark.parametrize(
    ("module", "found"),
    [
        (STORED.format(bytes=1024), 1024),
        (OTHER + STORED.format(bytes=0) + OTHER, 0),
        (STORED.format(bytes=5) + "    %7 = llvm.mlir.constant(6 : i64) : i64\n", 5),  # the one before counts
        ("    %7 = llvm.mlir.constant(4 : i64) : i64\n" + STORED.format(bytes=5), 5),
        (OTHER, "states the shared memory of 0 launches"),
        (STORED.format(bytes=1) * 2, "states the shared memory of 2 launches"),
        (STORED.format(bytes=1).replace("mlir.constant", "add"), "computes its shared memory at run time"),
    ],
)
def test_the_dynamic_shared_memory_is_that_of_the_only_launch(module, found):
    if isinstance(found, int):
        assert artifact._dynamic_shared_bytes(module) == found
    else:
        with pytest.raises(BuildError, match=found):
            artifact._dynamic_shared_bytes(module)


def test_a_saved_kernel_has_all_its_shared_memory_and_leaves_no_scratch(monkeypatch, tmp_path):
    seen = {}

    class Compiled:
        ir_module = STORED.format(bytes=4096)

        def export_to_c(self, object_file_path, function_name):
            seen["name"] = function_name
            with open(object_file_path, "wb") as file:
                file.write(b"object")

    def artifact_of(space, task, config, file, folder, launch, resources, started):
        seen.update(bytes=file.read_bytes(), suffix=file.suffix, launch=launch, started=started, folder=folder)
        return resources

    monkeypatch.setattr(artifact, "artifact_of", artifact_of)
    monkeypatch.setattr(artifact, "kernel_of", lambda data: (Resources(64, 512, 0, 256), len(data)))
    found = artifact.save("space", "task", "config", Compiled(), tmp_path, (("cluster", 2),), 1.5)
    assert found == Resources(64, 4608, 0, 256)
    assert seen == {
        "name": "kernel",
        "bytes": b"object",
        "suffix": ".o",
        "launch": (("cluster", 2), ("code_bytes", 6)),
        "started": 1.5,
        "folder": tmp_path,
    }
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("streams", [False, True])
def test_a_call_passes_its_tensors_and_the_stream_where_the_kernel_takes_it(monkeypatch, streams):
    calls = []
    monkeypatch.setattr(artifact, "load", lambda read: lambda *given: calls.append(given))
    monkeypatch.setattr(artifact, "clusters_at_once", lambda gpu, blocks: 66 if (gpu, blocks) == (3, 2) else None)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 77 + device, raising=False)
    call = ["a", "b.mT", "out", "bias", ("clusters.2", None), *(["stream"] if streams else [])]
    kernel = artifact.CuteKernel(SimpleNamespace(path="kernel.o"), call, ("a", "b", "out"))
    a, b, out = torch.ones(2, 3), torch.ones(3, 4), torch.zeros(2, 4)
    kernel(a, b, out)
    [(first, second, third, bias, clusters, *rest)] = calls
    assert first is a
    assert second.shape == (4, 3)
    assert third is out
    assert bias is out  # no bias is added
    assert clusters == (66, None)
    assert rest == ([76] if streams else [])  # a tensor on the CPU has device -1
    kernel.close()
    with pytest.raises(AttributeError):
        kernel(a, b, out)


def test_a_bias_is_passed_where_the_launch_has_one(monkeypatch):
    calls = []
    monkeypatch.setattr(artifact, "load", lambda read: lambda *given: calls.append(given))
    kernel = artifact.CuteKernel(SimpleNamespace(path="kernel.o"), ["bias"], ("a", "b", "out", "bias"))
    kernel(*map(torch.full, [(1,)] * 4, [1.0, 2.0, 3.0, 4.0]))
    assert calls == [(torch.tensor([4.0]),)]
    with pytest.raises(ValueError, match="argument"):
        kernel(torch.ones(1))
