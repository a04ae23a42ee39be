"""`python -m gpucluster.sandbox.provider ENGINE`: serve on a loopback port, and print the port."""

import sys

from pulumi.runtime.proto import provider_pb2_grpc

from gpucluster.engine.plugin import serve
from gpucluster.sandbox.provider.engine_log import EngineLog
from gpucluster.sandbox.provider.servicer import AwsStandIn


def main() -> int:
    """Serve until the engine stops the process."""
    stand_in = AwsStandIn(EngineLog(sys.argv[1]))
    return serve(lambda server: provider_pb2_grpc.add_ResourceProviderServicer_to_server(stand_in, server))


if __name__ == "__main__":
    sys.exit(main())
