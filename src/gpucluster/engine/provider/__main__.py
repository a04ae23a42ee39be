"""`python -m gpucluster.engine.provider ENGINE`: serve on a port of loopback, and print it."""

import sys

from pulumi.runtime.proto import provider_pb2_grpc

from gpucluster.engine.plugin import serve
from gpucluster.engine.provider.servicer import AwsStandIn


def main() -> int:
    """Serve until the engine ends us."""
    return serve(
        lambda server: provider_pb2_grpc.add_ResourceProviderServicer_to_server(AwsStandIn(), server)
    )


if __name__ == "__main__":
    sys.exit(main())
