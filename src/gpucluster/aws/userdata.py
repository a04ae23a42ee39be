"""User data: says where the bundle is and starts the agent. No secret, and the same bytes at every run."""

import base64
import json

from gpucluster.plan.names import AGENT_UNIT, BUNDLE_KEY, USER_DATA_FILE

LIMIT_BYTES = 16 * 1024  # before base64 (T16)


def user_data(*, cluster: str, region: str, bucket: str, role: str, name: str = "") -> str:
    """The cloud-config of a machine. JSON is YAML, and quotes what a name may hold.

    `name` is a login machine's own: one of `Login.names`. Nodes are told theirs by the controller.
    """
    machine = {"bucket": bucket, "cluster": cluster, "key": BUNDLE_KEY, "region": region, "role": role}
    if name:
        machine["name"] = name
    config = {
        "write_files": [
            {
                "path": USER_DATA_FILE,
                "permissions": "0644",
                "content": json.dumps(machine, sort_keys=True) + "\n",
            }
        ],
        # --no-block: the agent waits for what cloud-init's own end would wait for
        "runcmd": [["systemctl", "start", "--no-block", AGENT_UNIT]],
    }
    text = "#cloud-config\n" + json.dumps(config, indent=1, sort_keys=True) + "\n"
    if len(text.encode()) > LIMIT_BYTES:
        raise ValueError(f"user data is {len(text.encode())} bytes, EC2 takes {LIMIT_BYTES}")
    return text


def encoded(text: str) -> str:
    """As launch templates take it."""
    return base64.b64encode(text.encode()).decode()
