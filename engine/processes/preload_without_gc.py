"""First import of the fork server: imports the others with garbage collection switched off.

Imported modules stay, and collecting among them takes a fifth of torch's import time. Forked processes collect again.
An error must not end the server: forked processes import again what failed here, and report it.
"""

import gc
import os
from contextlib import suppress
from importlib import import_module

gc.disable()
for _module in os.environ.pop("GEMMTUNE_PRELOAD", "").split(",")[1:]:
    with suppress(BaseException):
        import_module(_module)
