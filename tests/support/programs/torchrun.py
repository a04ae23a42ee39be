#!/usr/bin/python3
"""A stand-in for torchrun with the c10d rendezvous: one launcher on each node, all at the endpoint of the first.

It refuses other backends, an endpoint that is not a host of the job, two launchers on one node, and launchers that do not
agree on id, endpoint, nodes and ranks of a node. Then it starts the ranks with the variables of torch.distributed.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time

WAIT_S = 600.0


def refuse(what):
    sys.exit(f"torchrun WRONG: {what}")


def meet(asked):
    """Return the number of this node, by the order of the names."""
    host, _, port = asked.rdzv_endpoint.rpartition(":")
    me = socket.gethostname()
    mine = {"node": me, "asked": [asked.rdzv_id, asked.rdzv_endpoint, asked.nnodes, asked.nproc_per_node]}
    if me != host:
        end = time.monotonic() + WAIT_S
        while True:
            try:
                link = socket.create_connection((host, int(port)), timeout=WAIT_S)
                break
            except OSError as error:
                if time.monotonic() > end:
                    refuse(f"no launcher at {asked.rdzv_endpoint}: {error}")
                time.sleep(0.1)
        link.sendall((json.dumps(mine) + "\n").encode())
        line = link.makefile().readline()
        return json.loads(line) if line.strip() else refuse("the first launcher refused")
    told, links = [mine], {}
    with socket.create_server((host, int(port))) as server:
        server.settimeout(WAIT_S)
        while len(told) < asked.nnodes:
            link, _ = server.accept()
            told.append(json.loads(link.makefile().readline()))
            links[told[-1]["node"]] = link
    nodes = [host, *sorted(one["node"] for one in told if one["node"] != host)]
    if len(set(nodes)) != asked.nnodes or any(one["asked"] != mine["asked"] for one in told):
        refuse(f"the launchers do not agree: {told}")
    for node, link in links.items():
        link.sendall((json.dumps(nodes.index(node)) + "\n").encode())
    return 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nnodes", type=int, required=True)
    parser.add_argument("--nproc-per-node", type=int, required=True)
    parser.add_argument("--rdzv-id", required=True)
    parser.add_argument("--rdzv-backend", choices=["c10d"], required=True)
    parser.add_argument("--rdzv-endpoint", required=True)
    parser.add_argument("program", nargs=argparse.REMAINDER)
    asked = parser.parse_args()
    node = meet(asked)
    host, _, port = asked.rdzv_endpoint.rpartition(":")
    ranks = []
    for local in range(asked.nproc_per_node):
        env = {
            "RANK": node * asked.nproc_per_node + local,
            "LOCAL_RANK": local,
            "WORLD_SIZE": asked.nnodes * asked.nproc_per_node,
            "MASTER_ADDR": host,
            "MASTER_PORT": int(port) + 1,
        }
        named = {name: str(value) for name, value in env.items()}
        ranks.append(subprocess.Popen([sys.executable, *asked.program], env={**os.environ, **named}))
    sys.exit(max([one.wait() for one in ranks]))


main()
