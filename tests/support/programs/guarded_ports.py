"""Run in a guest as root: load the guard's rules, and try to reach what they guard as each owner. Prints JSON, one line a try."""

import ctypes
import json
import os
import re
import select
import signal
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path

ADDRESS, METADATA = "10.0.0.1", "169.254.169.254"
PORTS = (80, 443, 988, 2049, 6890, 20049, 29500)
WAYS = {
    "tcp": (socket.AF_INET, socket.SOCK_STREAM, 0),
    "mptcp": (socket.AF_INET, socket.SOCK_STREAM, 262),
    "smc": (43, socket.SOCK_STREAM, 0),  # AF_SMC: the TCP socket inside is the kernel's
    "smc from 1000": (43, socket.SOCK_STREAM, 0),  # as the kernel's own client of Lustre
}
FROM = {"smc from 1000": 1000}  # a port that only root binds
OWNERS = {"root": 0, "slurm": 64030, "user": 1000}
LOOK_S = 0.1
LIBC = ctypes.CDLL(None, use_errno=True)
REACHED = [*((ADDRESS, port) for port in (443, 988, 2049, 6890, 29500)), ("127.0.0.1", 20049), (METADATA, 80)]
# Each packet that opens a connection, before the rules and after them
WATCH = """
table inet watch {
	counter before { }
	counter after { }
	chain first { type filter hook output priority filter - 10; tcp flags & (syn | ack) == syn counter name before; }
	chain last { type filter hook output priority filter + 10; tcp flags & (syn | ack) == syn counter name after; }
}
"""
heard: list[tuple[int, int]] = []  # (port of the server, port of the client)
kept: list[socket.socket] = []


def main() -> None:
    run("ip", "link", "set", "lo", "up")
    for address in (ADDRESS, METADATA):
        run("ip", "addr", "add", f"{address}/32", "dev", "lo")
    for module in ("nf_tables", "nft_reject_inet", "nfsv4"):
        run("modprobe", module)
    run("nft", "-f", "/rules.nft")
    Path("/watch.nft").write_text(WATCH)
    run("nft", "-f", "/watch.nft")
    servers = [socket.create_server(("0.0.0.0", port)) for port in PORTS]
    for server in servers:
        threading.Thread(target=listen, args=(server,), daemon=True).start()
    for owner, uid in OWNERS.items():
        for way in WAYS:
            for host, port in REACHED:
                say(owner=owner, way=way, host=host, port=port, found=attempt(uid, way, host, port))
    say(owner="check", way="guarded", reached=checked())
    run("nft", "delete", "table", "inet", "gpucluster")
    say(owner="check", way="open", reached=checked())
    run("nft", "-f", "/rules.nft")
    run("modprobe", "-r", "smc")
    modules = Path("/etc/modprobe.d/gpucluster.conf")
    modules.parent.mkdir()
    Path("/modprobe.conf").rename(modules)
    say(owner="user", way="smc without its module", port=443, found=attempt(1000, "smc", ADDRESS, 443))
    for options in json.loads(Path("/mounts.json").read_text()):
        for port in (2049, 988, 20049):
            say(owner="kernel", options=options, port=port, clients=mounted(options, port))


def run(*argv: str) -> str:
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{argv}: {done.stdout}{done.stderr}")
    return done.stdout


def say(**found: object) -> None:
    print(json.dumps(found), flush=True)


def checked() -> list[str]:
    """Return what the check of the guard prints for a user."""
    argv = ["python3", "-I", "-S", "/attempt.py", "2049", "988", "6890", "20049", "1"]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, user=1000, group=1000)
    return (done.stdout + done.stderr).splitlines()


def opened() -> tuple[int, int]:
    """Return how many packets opened a connection, before the rules and after them."""
    before, after = re.findall(r"packets (\d+)", run("nft", "list", "counters", "table", "inet", "watch"))
    return int(before), int(after)


def listen(server: socket.socket) -> None:
    port = server.getsockname()[1]
    while True:
        connection, client = server.accept()
        heard.append((port, client[1]))
        kept.append(connection)  # a client of NFS connects again at once


def attempt(uid: int, way: str, host: str, port: int) -> str:
    """Connect as a user in a process of its own: `connected`, the error, or `dropped`."""
    sent, passed = opened()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgid(uid)
        os.setuid(uid)
        try:
            client = socket.socket(*WAYS[way])
            to = address(host, port)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            here = address("0.0.0.0", FROM.get(way, 0))
            refused = LIBC.bind(client.fileno(), here, len(here)) or LIBC.connect(
                client.fileno(), to, len(to)
            )
            os.write(write, (os.strerror(ctypes.get_errno()) if refused else "connected").encode())
        except OSError as error:
            os.write(write, str(error).encode())
        os._exit(0)
    answered: list[int] = []
    dropped = False
    while (
        not answered and not dropped
    ):  # a refusal may come during the first packet's call, and then counts for the second
        answered, _, _ = select.select([read], [], [], LOOK_S)
        now_sent, now_passed = opened()
        dropped = now_sent >= sent + 3 and now_passed == passed
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(read) as answer:
        return answer.read() if answered else "dropped"


def address(host: str, port: int) -> bytes:
    """Return a sockaddr_in; Python knows no address of AF_SMC."""
    return struct.pack("=H", socket.AF_INET) + struct.pack("!H4s8x", port, socket.inet_aton(host))


def mounted(options: str, port: int) -> list[int]:
    """Let the kernel's own client of NFS connect, and return the ports that it came from. No server answers it."""
    before = len(heard)
    host = "127.0.0.1" if port == 20049 else ADDRESS
    words = f"{options},soft,timeo=10,retrans=1,port={port},addr={host},clientaddr={host}"
    child = os.fork()
    if child == 0:
        LIBC.mount(f"{host}:/".encode(), b"/mnt", b"nfs4", 0, words.encode())
        os._exit(0)
    while not any(server == port for server, _ in heard[before:]):
        time.sleep(LOOK_S)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return [client for server, client in heard[before:] if server == port]


main()
