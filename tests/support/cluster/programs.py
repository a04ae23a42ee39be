"""The programs on PATH: a small client each, which has the stand-in answer in the process of the tests.

A Python with the stand-in's modules takes 35 ms of CPU to start, the client 12; a test makes up to a hundred calls.
"""

import marshal
import socket
import sys
import tempfile
import threading
from functools import cache
from pathlib import Path

from support.cluster import helm, kubectl
from support.cluster.state import Call, CallerIsKilledError, EndedError

_MAINS = {"helm": helm.main, "kubectl": kubectl.main}
_CLIENT = """#!{python} -IS
import _socket, marshal, os, sys
argv = sys.argv[1:]
stdin = sys.stdin.read() if "-" in argv else ""
server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
server.connect({address!r})
server.sendall(marshal.dumps(({name!r}, {folder!r}, argv, stdin, os.getcwd())))
server.shutdown(_socket.SHUT_WR)
answer = b""
while part := server.recv(1 << 20):
    answer += part
out, text, code = marshal.loads(answer)
if code is None:
    import signal, time
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)  # setpriv kills us with the parent
sys.stdout.write(out + "\\n" if out else "")
sys.stderr.write(text + "\\n" if text else "")
sys.exit(code)
"""


def install(program: Path, name: str, folder: Path) -> None:
    """Write the program `name` for the cluster in `folder`."""
    text = _CLIENT.format(python=sys.executable, address=_address(), name=name, folder=str(folder))
    program.write_text(text)
    program.chmod(0o755)


@cache
def _address() -> str:
    """Serve all clusters of this process; return the path of the socket, which is short enough for the kernel."""
    path = f"{tempfile.mkdtemp(prefix='stand-ins-')}/socket"
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(path)
    server.listen(64)
    threading.Thread(target=_serve, args=(server,), daemon=True).start()
    return path


def _serve(server: socket.socket) -> None:
    while True:
        connection, _ = server.accept()
        threading.Thread(target=_answer, args=(connection,), daemon=True).start()


def _answer(connection: socket.socket) -> None:
    with connection, connection.makefile("rb") as asked:
        name, *call = marshal.loads(asked.read())  # noqa: S302  from our own clients
        try:
            answer = (_MAINS[name](Call(*call)), "", 0)
        except EndedError as error:
            answer = (error.out, error.text, error.code)
        except CallerIsKilledError:
            answer = ("", "", None)
        connection.sendall(marshal.dumps(answer))
