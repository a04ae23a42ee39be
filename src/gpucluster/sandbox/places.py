"""Every path, address and name of the sandbox that two of its modules, or the CLI, must agree on."""

from pathlib import Path

STATE_ROOT = Path("/var/lib/gpucluster-sandbox")  # one folder a sandbox; root only
CACHE = Path("/var/cache/gpucluster")  # images, .deb files, wheels, the engine; survives `down`

# In the capsule's own network namespace: no host has these, and no spec's range holds them.
METADATA_ADDRESS = "169.254.169.254"
API_ADDRESS = "169.254.169.252"  # not the metadata service's: a node's guard blocks that one
API_PORT = 5000
API_ENDPOINT = f"http://{API_ADDRESS}:{API_PORT}"
MOUNT_PORT = 5001  # on the API's address: the mount stand-ins ask there
BRIDGE = "br0"

# In the capsule's own /run, a tmpfs.
MACHINES = Path("/run/gpc/m")  # the root of each machine
DEVICES = Path("/run/gpc/dev")  # GPU nodes with nothing behind them
GPU_MAJOR = 195  # NVIDIA's


def cgroup_name(name: str) -> str:
    """The control group of one sandbox, in every hierarchy: how left-overs are found."""
    return f"gpc-{name}"
