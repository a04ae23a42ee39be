"""Paths, addresses and names that modules of the sandbox and the CLI share."""

from pathlib import Path

STATE_ROOT = Path("/var/lib/gpucluster-sandbox")  # one folder per sandbox; only root reads it
CACHE = Path("/var/cache/gpucluster")  # images, .deb files, wheels, the engine; survives `down`

# In the network namespace of the capsule. No host has these addresses, and no spec may use them.
METADATA_ADDRESS = "169.254.169.254"
API_ADDRESS = "169.254.169.252"  # not the address of the metadata service, which a node's guard blocks
API_PORT = 5000
API_ENDPOINT = f"http://{API_ADDRESS}:{API_PORT}"
SCENARIO_PREFIX = "/_gpucluster/"  # paths of the scenario commands at the API
MOUNT_PORT = 5001  # on the API's address; the mount stand-ins call it
BRIDGE = "br0"

# in the capsule's own /run, a tmpfs
MACHINES = Path("/run/gpc/m")  # the root file system of each machine
DEVICES = Path("/run/gpc/dev")  # GPU device files without a device
GPU_MAJOR = 195  # NVIDIA's major number


def cgroup_name(name: str) -> str:
    """The control group of one sandbox, in every hierarchy. Remains are found by this name."""
    return f"gpc-{name}"
