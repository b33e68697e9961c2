"""Process that imports Inductor once and runs each probe in a fork of itself: the import takes longer than a probe.

Reads one JSON line per probe: its file, arguments, folder and environment. Answers with the probe's exit status; what
the probe printed is in the files `stdout` and `stderr` of its folder.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import sys
import traceback


def warm_up():
    gc.disable()  # what is imported stays: each probe would search it for cycles, and copy its memory
    import torch._dynamo.guards
    import torch._inductor.compile_fx
    import torch._inductor.lookup_table.choices
    import torch._inductor.select_algorithm
    from torch._inductor.runtime.triton_compat import triton_key

    # It flushes the CPU's caches, at each compilation.
    vars(torch._dynamo.guards)["profile_guard_manager"] = lambda *_: 0.0
    triton_key()  # reads all of Triton and is kept: each probe that generates a kernel would do it again
    gc.freeze()
    gc.enable()
    gc.set_threshold(50_000, 20, 50)  # torch makes a million objects, few of them in cycles


def run(file, arguments, folder, settings):
    os.environ |= settings
    os.chdir(folder)
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(name, os.O_CREAT | os.O_WRONLY | os.O_TRUNC), number)
    sys.argv = [file, *arguments]
    sys.path.insert(0, os.path.dirname(file))
    runpy.run_path(file, run_name="__main__")


def main():
    warm_up()
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            status = 1
            try:
                run(**json.loads(line))
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
