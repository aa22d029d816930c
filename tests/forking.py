"""Starts Python scripts without their imports, which take longer than the work of most tests.

A server imports the libraries once. A client, called like ``python``, hands it the arguments,
folder, environment and standard streams of a script, which a fork of the server runs as
``__main__``. One script runs at a time.
"""

import importlib
import json
import os
import runpy
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PRELOADED = (
    # The first step of an optimizer imports _dynamo.
    *("torch", "torch._dynamo", "torch.utils.tensorboard", "hydra", "matplotlib.figure"),
    *("sacrebleu", "sacremoses", "sentencepiece", "safetensors.torch", "tqdm"),
)

CLIENT = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    request = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(server, [len(request).to_bytes(8, "big")], [0, 1, 2])
    server.sendall(request)
    sys.exit(int(server.recv(8)))
"""


@contextmanager
def forking_python() -> Iterator[Path]:
    """Start a server, and yield the path of its client."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        address, client = f"{folder}/socket", Path(folder, "python")
        client.write_text(CLIENT.format(python=sys.executable, address=address), encoding="utf-8")
        client.chmod(0o755)
        listener.bind(address)
        listener.listen()
        server = subprocess.Popen(
            [sys.executable, __file__, str(listener.fileno())],
            pass_fds=[listener.fileno()],
            # Threads would not survive the fork.
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        try:
            yield client
        finally:
            server.terminate()
            server.wait()


def serve(listener: socket.socket) -> None:
    """Run scripts until terminated; return in a fork whose script has ended."""
    for name in PRELOADED:
        importlib.import_module(name)
    while True:
        connection = listener.accept()[0]
        header, streams, *_ = socket.recv_fds(connection, 8, 3)
        with connection.makefile("rb") as incoming:
            request = incoming.read(int.from_bytes(header, "big"))
        child = os.fork()
        if child == 0:
            listener.close()
            connection.close()
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
                os.close(stream)
            return run_script(*json.loads(request))
        for stream in streams:
            os.close(stream)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        connection.sendall(str(128 - status if status < 0 else status).encode())
        connection.close()


def run_script(arguments: list[str], folder: str, environment: dict[str, str]) -> None:
    # New streams, because the old ones remember whether their files were seekable.
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False, buffering=1)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = arguments
    sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))
    runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
