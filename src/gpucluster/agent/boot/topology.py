"""topology.conf of the head, divided by the switches that the daemon has seen above always-on and reserved nodes."""

import logging
from pathlib import Path

from gpucluster.agent.boot.boot_state import Bundle
from gpucluster.agent.machine import Machine
from gpucluster.plan import names
from gpucluster.slurm import observed_switches

log = logging.getLogger(__name__)

NAME = "topology.conf"
_HEAD = "# EC2 reports several switches above nodes of one leaf: the leaf's name is that of the switch above them.\n"


def divided(machine: Machine, bundle: Bundle) -> str | None:
    """The text, if the daemon has seen several switches in one leaf; None: the bundle's file is right.

    The daemon's user writes the file with the places. One that is too large or wrong is ignored, with a warning.
    """
    seen, rendered = machine.path(names.SEEN_TOPOLOGY), bundle.tree / names.SLURM_DIR / NAME
    if bundle.plan.aws is None or not rendered.is_file():
        return None
    try:
        with seen.open("rb") as stream:
            raw = stream.read(observed_switches.MAX_BYTES)  # a larger file is cut, and is no JSON then
        places = observed_switches.loads(raw.decode())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        log.warning("%s is ignored: %s", names.SEEN_TOPOLOGY, error)
        return None
    text = rendered.read_text()
    made = observed_switches.divided(text, bundle.plan.leaves, places)
    return None if made == text else f"{_HEAD}{made}"


def target_of(machine: Machine, bundle: Bundle) -> Path | None:
    """The file for the link in /etc/slurm, written anew if the places changed; None: the bundle's file."""
    text = divided(machine, bundle)
    if text is None:
        return None
    machine.write(names.DIVIDED_TOPOLOGY, text)
    return Path(names.DIVIDED_TOPOLOGY)
