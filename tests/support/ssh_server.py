"""A real ssh server on loopback, in this process. It runs commands by sh, as a host's sshd would."""

import socket
import subprocess
import threading
from pathlib import Path

import paramiko
from paramiko.common import AUTH_FAILED, AUTH_SUCCESSFUL, OPEN_SUCCEEDED


class SshServer:
    """`with SshServer(authorized) as server:`; `known_hosts(folder)` writes the file that trusts it."""

    def __init__(self, authorized: paramiko.PKey) -> None:
        self.key = paramiko.RSAKey.generate(2048)
        self._authorized = authorized
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self.port: int = self._listener.getsockname()[1]
        self._transports: list[paramiko.Transport] = []
        self.commands: list[str] = []
        self.stuck = "\0"  # a command that contains this is never answered

    def __enter__(self) -> "SshServer":
        self._acceptor.start()
        return self

    def __exit__(self, *_error: object) -> None:
        """End the thread first: one that still waits in accept(2) when its descriptor is closed takes the connections
        of whatever socket gets the number next, as soon as a signal restarts the call.
        """
        self._listener.shutdown(socket.SHUT_RDWR)
        for transport in self._transports:
            transport.close()
        self._acceptor.join()
        self._listener.close()

    def known_hosts(self, file: Path, key: paramiko.PKey | None = None) -> Path:
        """The file with this server's key, or with another key in its place."""
        shown = key or self.key
        file.write_text(f"[127.0.0.1]:{self.port} {shown.get_name()} {shown.get_base64()}\n")
        return file

    def _accept(self) -> None:
        while True:
            try:
                link, _ = self._listener.accept()
            except OSError:
                return
            transport = paramiko.Transport(link)
            transport.add_server_key(self.key)
            self._transports.append(transport)
            try:
                transport.start_server(server=_Session(self, self._authorized))
            except (paramiko.SSHException, EOFError, OSError):
                continue  # the client refused our key, or has gone


class _Session(paramiko.ServerInterface):
    def __init__(self, server: SshServer, authorized: paramiko.PKey) -> None:
        self._server, self._authorized = server, authorized

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return AUTH_SUCCESSFUL if key == self._authorized else AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return OPEN_SUCCEEDED

    def check_channel_env_request(self, channel: paramiko.Channel, name: bytes, value: bytes) -> bool:
        return True

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        self._server.commands.append(command.decode())
        if self._server.stuck not in command.decode():
            threading.Thread(target=_answer, args=(channel, command), daemon=True).start()
        return True


def _answer(channel: paramiko.Channel, command: bytes) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", command.decode()], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    channel.sendall(done.stdout)
    channel.sendall_stderr(done.stderr)
    channel.send_exit_status(done.returncode)
    channel.close()
