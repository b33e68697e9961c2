"""Program that has the server of server.py run `gemmtune ...` or `python FILE ...`; named as what it stands for.

It ends as the command ends, and the command is killed when this process is. What it cannot serve it replaces itself by.
"""

import json
import os
import signal
import socket
import sys

folder, program = os.path.split(sys.argv[0])
is_script = program == "python" and len(sys.argv) > 1 and sys.argv[1].endswith(".py")
if "PYTHONPATH" in os.environ or not (is_script or program == "gemmtune"):
    real = f"{os.readlink(f'{folder}/bin')}/{program}"
    os.execv(real, [real, *sys.argv[1:]])
with socket.socket(socket.AF_UNIX) as server:
    server.connect(f"{folder}/socket")
    asked = {"command": [program, *sys.argv[1:]], "folder": os.getcwd(), "environment": dict(os.environ)}
    text = f"{json.dumps(asked)}\n".encode()
    sent = socket.send_fds(server, [text], [0, 1, 2])
    server.sendall(text[sent:])
    status = int(server.recv(16))
if status < 0:
    if status != -signal.SIGKILL:
        signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
sys.exit(status)
