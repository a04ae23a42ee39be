"""A stand-in for a training program on torch or DeepSpeed, stricter than both: it refuses each wrong rendezvous.

Every rank connects to rank 0 at MASTER_ADDR:MASTER_PORT. Rank 0 checks that each rank is there once, that all name the same
world and the same address, that the local ranks of each host begin at 0, and that each host has a GPU for each of them.
Then it counts steps. At USR1 rank 0 writes its step and all ranks end, as a program with checkpoints does. Standard library only.
"""

import argparse
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

WAIT_S = 600.0
stopped = []  # signals


def stop(number, _frame):
    stopped.append(number)


def refuse(what):
    print(f"WRONG: {what}", flush=True)
    sys.exit(9)


def number(name):
    value = os.environ.get(name, "")
    if not value.isdigit():
        refuse(f"{name} is {value!r}")
    return int(value)


def check(told, world):
    """Refuse what a real run would hang on, or what would let two ranks share a GPU."""
    if sorted(one["rank"] for one in told) != list(range(world)):
        refuse(f"ranks {sorted(one['rank'] for one in told)} of {world}")
    if len({(one["world"], one["at"]) for one in told}) != 1:
        refuse(f"several worlds: {sorted({(one['world'], one['at']) for one in told})}")
    hosts = {one["host"] for one in told}
    for host in hosts:
        here = [one for one in told if one["host"] == host]
        if sorted(one["local"] for one in here) != list(range(len(here))):
            refuse(f"local ranks on {host}: {sorted(one['local'] for one in here)}")
        if any(len(one["gpus"]) != len(here) for one in here):
            refuse(f"{len(here)} ranks on {host} see GPUs {[one['gpus'] for one in here]}")
    return sorted(hosts)


def rendezvous(rank, world):
    name, port = os.environ.get("MASTER_ADDR", ""), number("MASTER_PORT")
    gpus = [one for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one]
    mine = {
        "rank": rank,
        "world": world,
        "local": number("LOCAL_RANK"),
        "host": socket.gethostname(),
        "at": f"{name}:{port}",
        "gpus": gpus,
    }
    if rank:
        join(name, port, mine)
        return
    if socket.gethostname() != name:
        refuse(f"rank 0 runs on {socket.gethostname()}, and MASTER_ADDR is {name}")
    told, links = [mine], []
    with listen(name, port) as server:
        server.settimeout(WAIT_S)
        while len(told) < world:
            link, _ = server.accept()
            links.append(link)
            told.append(json.loads(link.makefile().readline()))
    hosts = check(told, world)
    for link in links:
        link.sendall(b"go\n")
    print(f"rendezvous of {world} ranks on {','.join(hosts)}", flush=True)


def listen(name, port):
    try:
        return socket.create_server((name, port))
    except OSError as error:
        refuse(f"rank 0 cannot listen at {name}:{port}, as when another rank 0 does: {error}")
        raise


def join(name, port, mine):
    end = time.monotonic() + WAIT_S
    while True:
        try:
            link = socket.create_connection((name, port), timeout=WAIT_S)
            break
        except OSError as error:
            if time.monotonic() > end:
                refuse(f"rank 0 is not at {name}:{port}: {error}")
            time.sleep(0.1)
    link.sendall((json.dumps(mine) + "\n").encode())
    if link.makefile().readline() != "go\n":
        refuse("rank 0 refused the rendezvous")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoints", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--deepspeed", action="store_true")
    parser.add_argument("--deepspeed_config", type=Path)
    parser.add_argument("--steps", type=int, default=1)
    asked = parser.parse_args()
    signal.signal(signal.SIGUSR1, stop)
    rank, world = number("RANK"), number("WORLD_SIZE")
    if asked.deepspeed and "zero_optimization" not in json.loads(asked.deepspeed_config.read_text()):
        refuse("the configuration has no zero_optimization")
    if asked.data is not None and sorted(one.name for one in asked.data.iterdir()) != ["part-0", "part-1"]:
        refuse(f"the data set has {sorted(one.name for one in asked.data.iterdir())}")
    rendezvous(rank, world)
    saved = None if asked.checkpoints is None else asked.checkpoints / "step"
    step = int(saved.read_text()) if saved is not None and saved.exists() else 0
    if rank == 0:
        print(f"starts at step {step}", flush=True)
    while step < asked.steps and not stopped:
        step += 1
        time.sleep(0.1)
    if rank == 0 and saved is not None:
        saved.with_suffix(".new").write_text(str(step))
        saved.with_suffix(".new").replace(saved)
    if rank == 0:
        print(f"{'stopped' if stopped else 'done'} at step {step}", flush=True)


main()
