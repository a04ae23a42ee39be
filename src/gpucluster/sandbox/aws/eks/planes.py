"""The API servers of clusters. A real one comes from `sandbox.kubernetes`; without one, a cluster has an address and no server."""

import base64
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where the API server of a cluster answers, and the authority that it is trusted by (base64 of PEM)."""

    url: str
    authority: str


class Planes:
    """No API server: calls of EKS alone can be tried. Subclasses start real ones."""

    def start(self, cluster: str, version: str) -> None:
        """Begin to start the API server of a new cluster."""

    def ready(self, cluster: str) -> bool:
        """Say whether it answers."""
        return bool(cluster)

    def endpoint(self, cluster: str) -> Endpoint:
        """Return its address; called when it is ready."""
        return Endpoint(url=f"https://{cluster}.eks.invalid", authority=base64.b64encode(b"none").decode())

    def end(self, cluster: str) -> None:
        """End it with everything that it holds."""
