"""Run in a guest as root: load the guard's rules, and try to reach what they guard as each owner. Prints JSON, one line a try."""

import contextlib
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
from collections.abc import Iterator
from pathlib import Path

ADDRESS, METADATA = "10.0.0.1", "169.254.169.254"
ADDRESS_6, METADATA_6 = "fd00::1", "fd00:ec2::254"
PORTS = (80, 443, 988, 1021, 2049, 6890, 20049, 29500)
WAYS = {
    "tcp": (socket.AF_INET, socket.SOCK_STREAM, 0),
    "mptcp": (socket.AF_INET, socket.SOCK_STREAM, 262),
    "smc": (43, socket.SOCK_STREAM, 0),  # AF_SMC: the TCP socket inside is the kernel's
    "smc from 1000": (43, socket.SOCK_STREAM, 0),  # as the kernel's own client of Lustre
}
WAYS_6 = {
    "tcp6": (socket.AF_INET6, socket.SOCK_STREAM, 0),
    "mptcp6": (socket.AF_INET6, socket.SOCK_STREAM, 262),
    "smc6": (43, socket.SOCK_STREAM, 1),
    "smc6 from 1000": (43, socket.SOCK_STREAM, 1),
}
# forwarded: from a network namespace, where the user is root
WAYS_FORWARDED = {
    "tcp": WAYS["tcp"], "tcp from 1000": WAYS["tcp"], "tcp6": WAYS_6["tcp6"], "tcp6 from 1000": WAYS_6["tcp6"],
}  # fmt: skip
FROM = {"smc from 1000", "smc6 from 1000", "tcp from 1000", "tcp6 from 1000"}  # a port that only root binds
OWNERS = {"root": 0, "slurm": 64030, "user": 1000}
LOOK_S = 0.1
LIBC = ctypes.CDLL(None, use_errno=True)
GUARDED = (443, 988, 1021, 2049, 6890, 29500)
REACHED = [*((ADDRESS, port) for port in GUARDED), ("127.0.0.1", 20049), (METADATA, 80)]
REACHED_6 = [
    *((ADDRESS_6, port) for port in GUARDED), ("::1", 2049), (f"::ffff:{ADDRESS}", 2049), ("::ffff:127.0.0.1", 20049), (METADATA_6, 80),
]  # fmt: skip
BEYOND = {"tcp": ("10.2.0.2", METADATA), "tcp6": ("fd00:2::2", METADATA_6)}  # of the namespace with servers
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
# Each packet that opens a connection, before the rules and after them
WATCH = """
table inet watch {
	counter before { }
	counter after { }
	chain first { type filter hook output priority filter - 10; tcp flags & (syn | ack) == syn counter name before; }
	chain last { type filter hook output priority filter + 10; tcp flags & (syn | ack) == syn counter name after; }
	chain came { type filter hook forward priority filter - 10; tcp flags & (syn | ack) == syn counter name before; }
	chain went { type filter hook forward priority filter + 10; tcp flags & (syn | ack) == syn counter name after; }
}
"""
heard: list[tuple[int, int]] = []  # (port of the server, port of the client)
kept: list[socket.socket] = []


def main() -> None:
    run("ip", "link", "set", "lo", "up")
    for address in (ADDRESS, METADATA):
        run("ip", "addr", "add", f"{address}/32", "dev", "lo")
    for address in (ADDRESS_6, METADATA_6):
        run("ip", "addr", "add", f"{address}/128", "dev", "lo")
    for module in ("nf_tables", "nft_reject_inet", "nfsv4", "veth"):
        run("modprobe", module)
    run("nft", "-f", "/rules.nft")
    Path("/watch.nft").write_text(WATCH)
    run("nft", "-f", "/watch.nft")
    serve()
    for owner, uid in OWNERS.items():
        for ways, reached in ((WAYS, REACHED), (WAYS_6, REACHED_6)):
            for way in ways:
                for host, port in reached:
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
    forward()


def serve() -> None:
    for port in PORTS:
        server = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
        threading.Thread(target=listen, args=(server,), daemon=True).start()


def forward() -> None:
    """Join a namespace of a user and one with servers by this machine, and try to get through it."""
    for address in (f"{METADATA}/32", f"{METADATA_6}/128"):
        run("ip", "addr", "del", address, "dev", "lo")
    for forwards in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
        Path("/proc/sys/net", forwards).write_text("1")
    owners, servers = (namespace(uid, network) for network, uid in ((1, 1000), (2, 0)))
    for address, via in ((METADATA, "10.2.0.2"), (METADATA_6, "fd00:2::2")):
        run("ip", "route", "add", address, "via", via)
    with inside(servers):
        run("ip", "addr", "add", f"{METADATA}/32", "dev", "lo")
        run("ip", "addr", "add", f"{METADATA_6}/128", "dev", "lo")
        serve()
    for way in WAYS_FORWARDED:
        host, metadata = BEYOND[way.partition(" ")[0]]
        for to, port in (*((host, port) for port in GUARDED), (metadata, 80)):
            found = attempt(1000, way, to, port, namespace=owners)
            say(owner="namespace", way=way, host=to, port=port, found=found)


def namespace(uid: int, network: int) -> int:
    """Make a network namespace that is a user's own, or root's, with a route through this machine. Return its process."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgid(uid)
        os.setuid(uid)
        made = LIBC.unshare(CLONE_NEWNET | (CLONE_NEWUSER if uid else 0))
        os.write(write, os.strerror(ctypes.get_errno()).encode() if made else b"made")
        while True:
            signal.pause()
    said = os.read(read, 100)
    if said != b"made":
        raise SystemExit(f"no namespace: {said.decode()}")
    if uid:
        Path(f"/proc/{child}/uid_map").write_text(f"0 {uid} 1")
    run("ip", "link", "add", f"near{network}", "type", "veth")  # the kernel names the other end veth0
    run("ip", "link", "set", "veth0", "netns", str(child))
    joined(f"near{network}", network, 1)
    with inside(child):
        joined("veth0", network, 2)
        run("ip", "link", "set", "lo", "up")
        run("ip", "route", "add", "default", "via", f"10.{network}.0.1")
        run("ip", "-6", "route", "add", "default", "via", f"fd00:{network}::1")
    return child


def joined(device: str, network: int, number: int) -> None:
    """Give an end of a wire its addresses; those of IPv6 count at once."""
    Path("/proc/sys/net/ipv6/conf", device, "accept_dad").write_text("0")
    run("ip", "link", "set", device, "up")
    run("ip", "addr", "add", f"10.{network}.0.{number}/24", "dev", device)
    run("ip", "addr", "add", f"fd00:{network}::{number}/64", "dev", device)


@contextlib.contextmanager
def inside(process: int) -> Iterator[None]:
    """Be in the network namespace of a process; new threads and processes stay in it."""
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    enter(process, "net")
    try:
        yield
    finally:
        LIBC.setns(own, CLONE_NEWNET)
        os.close(own)


def enter(process: int, kind: str) -> None:
    file = os.open(f"/proc/{process}/ns/{kind}", os.O_RDONLY)
    if LIBC.setns(file, 0):
        raise SystemExit(f"{kind} of {process}: {os.strerror(ctypes.get_errno())}")
    os.close(file)


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


def attempt(uid: int, way: str, host: str, port: int, *, namespace: int = 0) -> str:
    """Connect as a user in a process of its own: `connected`, the error, or `dropped`. `namespace`: as root of that process's."""
    sent, passed = opened()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        if namespace:
            for kind in ("net", "user"):
                enter(namespace, kind)
            os.setuid(0)  # which is the user outside
        else:
            os.setgid(uid)
            os.setuid(uid)
        try:
            client = socket.socket(*(WAYS | WAYS_6 | WAYS_FORWARDED)[way])
            to = address(host, port)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            here = address("::" if ":" in host else "0.0.0.0", 1000 if way in FROM else 0)
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
    """Return a sockaddr_in or a sockaddr_in6; Python knows no address of AF_SMC."""
    if ":" in host:
        there = socket.inet_pton(socket.AF_INET6, host)
        return struct.pack("=H", socket.AF_INET6) + struct.pack("!HI16sI", port, 0, there, 0)
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
