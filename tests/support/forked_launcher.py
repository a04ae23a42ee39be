"""A program for scripts of a shell: it is Python, but runs `-I -m gpucluster.cli` by `forked_cli`.

A start of `gpucluster review` takes a second of CPU, most of it for imports, and a job of a CI starts three commands.
"""

import marshal
import socket
import sys
import threading
from functools import cache
from pathlib import Path

from support import forked_cli

LIMIT_S = 600
_CLIENT = """#!{python} -IS
import _socket, marshal, os, sys
argv = sys.argv[1:]
if argv[:3] != ["-I", "-m", "gpucluster.cli"]:
    os.execv({python!r}, [{python!r}, *argv])
server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
server.connect({address!r})
server.sendall(marshal.dumps((argv[3:], os.getcwd(), dict(os.environ))))
server.shutdown(_socket.SHUT_WR)
answer = b""
while part := server.recv(1 << 20):
    answer += part
out, text, code = marshal.loads(answer)
sys.stdout.write(out)
sys.stderr.write(text)
sys.exit(code)
"""


def install(program: Path) -> None:
    """Write the program. It answers while this process lives."""
    program.write_text(_CLIENT.format(python=sys.executable, address=_address()))
    program.chmod(0o755)


@cache
def _address() -> bytes:
    """Serve all programs of this process; return the socket's address, which is no file: the kernel chooses it."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(b"")
    server.listen(16)
    threading.Thread(target=_serve, args=(server,), daemon=True).start()
    return server.getsockname()


def _serve(server: socket.socket) -> None:
    while True:
        connection, _ = server.accept()
        with connection, connection.makefile("rb") as asked:
            argv, folder, environment = marshal.loads(asked.read())  # noqa: S302  from our own clients
            done = forked_cli.run(tuple(argv), folder=Path(folder), timeout=LIMIT_S, environment=environment)
            connection.sendall(marshal.dumps((done.stdout, done.stderr, done.returncode)))
