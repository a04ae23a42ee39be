"""`python -m gpucluster.sandbox.provider ENGINE`: serve on a loopback port, and print the port."""

import sys

from gpucluster.sandbox.provider.bare_sdk import load_messages_only


def main() -> int:
    """Serve until the engine stops the process."""
    load_messages_only()
    from pulumi.runtime.proto import provider_pb2_grpc  # noqa: PLC0415  after the line above

    from gpucluster.engine.plugin import serve  # noqa: PLC0415
    from gpucluster.sandbox.provider.engine_log import EngineLog  # noqa: PLC0415
    from gpucluster.sandbox.provider.servicer import AwsStandIn  # noqa: PLC0415

    stand_in = AwsStandIn(EngineLog(sys.argv[1]))
    return serve(lambda server: provider_pb2_grpc.add_ResourceProviderServicer_to_server(stand_in, server))


if __name__ == "__main__":
    sys.exit(main())
