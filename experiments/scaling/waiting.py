"""Builders and GPU workers that wait instead: processes of the real pools, with made-up answers."""

from __future__ import annotations

import random
import time

from gemmtune.engine.measure.builder import BuildJob
from gemmtune.engine.measure.jobs import FinalistReading, FinalJob, FinalReading, MeasureJob, Reading
from gemmtune.engine.records.artifact import Artifact, Resources, Toolchain
from gemmtune.engine.records.measurement import DeviceState, Estimate, Status

__all__ = ["build", "measure"]

BUILD_SECONDS, MEASURE_SECONDS, FINAL_SECONDS = 0.5, 0.008, 0.2
STATE = DeviceState(sm_clock_mhz=1980, memory_clock_mhz=3201, temperature_c=40, power_mw=100_000)
MADE_UP = Toolchain((("made up", "1"),))


def build():
    """Return a builder that waits."""

    def built(job: BuildJob) -> Artifact:
        seconds = 0.0 if job.task.space == "aten" else BUILD_SECONDS * random.uniform(0.7, 1.3)
        time.sleep(seconds)
        key = f"{job.task.key}/{job.config.digest}"
        return Artifact(
            key, job.task.space, "", "", (("entry", "k"),), Resources(128, 60_000, 0, 128), seconds, MADE_UP
        )

    return built


def measure():
    """Return a worker that waits."""

    def measured(job: MeasureJob | FinalJob) -> Reading | FinalReading:
        if isinstance(job, FinalJob):
            time.sleep(FINAL_SECONDS)
            estimate = Estimate(1e4, 9.9e3, 1.01e4)
            numbers = range(len(job.finalists))
            return FinalReading(
                tuple(FinalistReading(n, estimate, (1e4,) * 48, (0.001 * n, 0.01 * n)) for n in numbers)
            )
        time.sleep(MEASURE_SECONDS)
        time_ns = 1e4 * (1 + 3 * random.Random(job.config.digest).random())
        samples = tuple(time_ns * random.uniform(0.99, 1.01) for _ in range(12))
        estimate = Estimate(time_ns, 0.99 * time_ns, 1.01 * time_ns)
        return Reading(Status.OK, "", samples, estimate, error_norm=1e-3, before=STATE, after=STATE)

    return measured
