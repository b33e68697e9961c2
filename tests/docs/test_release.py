"""The commands of docs/deploying.md that sign, check, promote and roll back a release."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/deploying.md"
SIGN, CHECK, PROMOTE = re.findall(r"^```bash\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="OpenSSH is not installed")


@pytest.fixture
def shell(tmp_path):
    """Runs a block of the page where deploy/inductor has two files, and ~/.ssh a key that `signers` lists."""
    (tmp_path / ".ssh").mkdir()
    key = tmp_path / ".ssh/release"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    (tmp_path / "signers").write_text(f"release@example.com {key.with_suffix('.pub').read_text()}")
    table = tmp_path / "deploy/inductor/inductor_table.json"
    (table.parent / "gemmtune_inductor").mkdir(parents=True)
    (table.parent / "gemmtune_inductor/__init__.py").touch()
    table.write_text("{}")

    def run(text: str) -> int:
        command = ["bash", "-euo", "pipefail", "-c", text]
        home = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
        return subprocess.run(command, cwd=tmp_path, env=home, check=False).returncode

    return run


def release(tmp_path: Path) -> Path:
    return tmp_path / "releases/2026-11-27"


def test_a_signed_release_passes_and_a_changed_or_missing_file_does_not(shell, tmp_path):
    assert (shell(SIGN), shell(CHECK)) == (0, 0)
    table, sums = (release(tmp_path) / name for name in ("inductor_table.json", "SHA256SUMS"))
    table.write_text("{ }")
    assert shell(CHECK) != 0
    sums.write_text(sums.read_text().replace("0", "1"))
    assert shell(CHECK) != 0
    (tmp_path / "deploy/inductor/SHA256SUMS.sig").unlink()
    assert shell(SIGN.replace("mkdir -p", "rm -r releases; mkdir -p")) == 0
    (release(tmp_path) / "gemmtune_inductor/__init__.py").unlink()
    assert shell(CHECK) != 0


def test_a_release_is_promoted_and_rolled_back_in_one_step(shell, tmp_path):
    assert (shell(SIGN), shell(PROMOTE)) == (0, 0)
    production = tmp_path / "releases/production"
    assert (production / "inductor_table.json").read_text() == "{}"
    shutil.copytree(release(tmp_path), tmp_path / "releases/2026-11-28")
    for name in ("2026-11-28", "2026-11-27"):
        assert shell(PROMOTE.replace("2026-11-27", name)) == 0
        assert production.resolve().name == name
    assert not (tmp_path / "releases/next").exists()


def test_another_signer_is_refused(shell, tmp_path):
    signers = tmp_path / "signers"
    signers.write_text(signers.read_text().replace("release@", "other@"))
    assert shell(SIGN) == 0
    assert shell(CHECK) != 0
