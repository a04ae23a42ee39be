"""`python -m gpucluster.engine.provider ENGINE`: serve on a port of loopback, and print it."""

import sys

from pulumi.runtime.proto import provider_pb2_grpc

from gpucluster.engine.plugin import serve
from gpucluster.engine.provider.servicer import AwsStandIn
from gpucluster.engine.provider.telling import EngineLog


def main() -> int:
    """Serve until the engine ends us."""
    stand_in = AwsStandIn(EngineLog(sys.argv[1]))
    return serve(lambda server: provider_pb2_grpc.add_ResourceProviderServicer_to_server(stand_in, server))


if __name__ == "__main__":
    sys.exit(main())
