"""Take the cluster's munge key from standard input, in base64: so it is in no argument, no log and no file but its own.

`python -m gpucluster.node.keyfile`: prints `changed` or `same`.
"""

import base64
import binascii
import sys

from gpucluster.node import effects, key
from gpucluster.node.machine import Machine
from gpucluster.plan import names

STOP_S = 30.0


def main() -> int:
    try:
        print("changed" if take(effects.real(), sys.stdin.read()) else "same")  # noqa: T201  the playbook reads it
    except ValueError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    return 0


def take(machine: Machine, text: str) -> bool:
    """Make the key's file so; False if it was so before. munged has the old one in memory until the agent starts it again."""
    try:
        value = base64.b64decode(text.strip(), validate=True)
    except binascii.Error:
        raise ValueError("the key is not in base64") from None  # and never the text itself
    if not key.SHORTEST <= len(value) <= key.LONGEST:
        raise ValueError(f"the key has {len(value)} bytes, munge takes {key.SHORTEST} to {key.LONGEST}")
    if _held(machine) not in (
        None,
        value,
    ):  # stopped first: a run that breaks off here leaves no munged with another key
        machine.run(["systemctl", "stop", "munge.service"], timeout_s=STOP_S)
    return machine.write(names.MUNGE_KEY, value, mode=0o400, owner="munge")


def _held(machine: Machine) -> bytes | None:
    try:
        return machine.place(names.MUNGE_KEY).read_bytes()
    except FileNotFoundError:
        return None


if __name__ == "__main__":
    sys.exit(main())
