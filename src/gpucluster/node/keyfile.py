"""Take the cluster's munge key from standard input, in base64: so it is in no argument, no log and no file but its own.

`python -m gpucluster.node.keyfile`: prints `changed` or `same`.
"""

import base64
import binascii
import sys

from gpucluster.node import effects, key
from gpucluster.node.machine import Machine
from gpucluster.plan import names


def main() -> int:
    try:
        print("changed" if take(effects.real(), sys.stdin.read()) else "same")  # noqa: T201  the playbook reads it
    except ValueError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    return 0


def take(machine: Machine, text: str) -> bool:
    """Make the key's file so; False if it was so before."""
    try:
        value = base64.b64decode(text.strip(), validate=True)
    except binascii.Error:
        raise ValueError("the key is not in base64") from None  # and never the text itself
    if not key.SHORTEST <= len(value) <= key.LONGEST:
        raise ValueError(f"the key has {len(value)} bytes, munge takes {key.SHORTEST} to {key.LONGEST}")
    return machine.write(names.MUNGE_KEY, value, mode=0o400, owner="munge")


if __name__ == "__main__":
    sys.exit(main())
