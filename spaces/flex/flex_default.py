"""Space of the config that Inductor takes for flex_attention untuned, the baseline of attention."""

from pathlib import Path

from gemmtune.engine.records.artifact import Artifact, Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.flex.attention import flex
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.space import Launchable
from gemmtune.engine.toolchain.versions import triton_toolchain
from gemmtune.spaces.common.one_config import OneConfigSpace
from gemmtune.spaces.flex.flex_attention import FlexAttentionSpace, served


class FlexDefaultSpace(OneConfigSpace):
    """One config: the one that the installed torch has for the device, the type and the head's size."""

    workload = "flex"
    preload = FlexAttentionSpace.preload
    examples = FlexAttentionSpace.examples

    def check(self, task: Task, config: Config) -> Verdict:
        """Reject what is another kernel; what torch's config does not fit fails to build, as it fails untuned."""
        return served(flex(task.problem))

    def toolchain(self) -> Toolchain:
        """Return the versions of torch and Triton, and what changes their kernels; see `triton_toolchain`."""
        return triton_toolchain("torch")

    def artifact_key(self, task: Task, config: Config) -> str:
        """Return all that the binary depends on, torch's version aside."""
        return FlexAttentionSpace().artifact_key(task, config)

    def build(self, task: Task, config: Config, folder: Path) -> Artifact:
        """Render the template with torch's config, and cross-compile it for the task's device."""
        from gemmtune.spaces.inductor.flex import build_flex

        return build_flex(self, task, None, folder)

    def load(self, artifact: Artifact, task: Task) -> Launchable:
        """Load the cubin of an artifact; return the kernel, which is launched with the task's operands."""
        return FlexAttentionSpace().load(artifact, task)
