"""First import of the fork server: switches garbage collection off while the server imports.

Imported modules stay, and collecting among them takes a fifth of torch's import time. Forked processes collect again.
"""

import gc

gc.disable()
