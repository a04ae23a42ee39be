"""Made-up values for what only the cloud tells: a text with names in it can so be read before there is a cloud.

For judges of texts alone (`Rule.texts`): nobody may take one for the truth.
"""

from typing import Final

from gpucluster.engine.offline.model import Value

ACCOUNT: Final = "000000000000"
ADDRESS: Final = "192.0.2.1"  # RFC 5737: nobody's
_TOLD: Final = ("bucket", "dnsName", "key", "mountName", "name", "url")  # what programs put into texts


def made_up(type_: str, name: str) -> dict[str, Value]:
    """By the resource's type and name alone: the same each time."""
    _, _, of = type_.partition(":")
    service, _, word = of.partition("/")
    word = word.partition(":")[0]
    return {
        **{one: f"{word}-{name}-{one}" for one in _TOLD},
        "arn": f"arn:aws:{service}:us-east-1:{ACCOUNT}:{word}/{name}",
        "id": f"{word}-{name}",
        "latestVersion": 1,
        "ownerId": ACCOUNT,
        "privateIp": ADDRESS,
        "publicIp": ADDRESS,
    }
