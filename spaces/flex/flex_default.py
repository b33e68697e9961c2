"""Space of the config that Inductor takes for flex_attention untuned, the baseline of attention."""

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.flex.attention import flex
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.space import Space
from gemmtune.spaces.common.one_config import OneConfigSpace
from gemmtune.spaces.flex.flex_attention import FlexAttentionSpace, served


class FlexDefaultSpace(OneConfigSpace, FlexAttentionSpace):
    """One config: the one that the installed torch has for the device, the type and the head's size."""

    features = Space.features

    def check(self, task: Task, config: Config) -> Verdict:
        """Reject what is another kernel; what torch's config does not fit fails to build, as it fails untuned."""
        return served(flex(task.problem))
