"""The user data of a machine of a cluster: which bucket its agent reads, and its role. Pure."""

import base64
import json

from gpucluster.plan.names import AGENT_UNIT, BUNDLE_KEY, USER_DATA_FILE

LIMIT_BYTES = 16 * 1024  # before base64 (T16)


def user_data(*, cluster: str, region: str, bucket: str, role: str, name: str = "") -> str:
    """Return the cloud-config of a machine as JSON, which is valid YAML and quotes every name.

    `name` is the host name of a login machine, one of `Login.names`. Nodes get theirs from the controller.
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
        # --no-block: the agent waits for units that wait for the end of cloud-init
        "runcmd": [["systemctl", "start", "--no-block", AGENT_UNIT]],
    }
    text = "#cloud-config\n" + json.dumps(config, indent=1, sort_keys=True) + "\n"
    if len(text.encode()) > LIMIT_BYTES:
        raise ValueError(f"user data is {len(text.encode())} bytes, EC2 takes {LIMIT_BYTES}")
    return text


def encoded(text: str) -> str:
    """Return the text in base64, for launch templates."""
    return base64.b64encode(text.encode()).decode()
