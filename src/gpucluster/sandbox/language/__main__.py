"""`python -m gpucluster.sandbox.language [FLAGS] ENGINE`: serve on a loopback port, and print the port."""

import sys

from pulumi.runtime.proto import language_pb2_grpc

from gpucluster.engine.plugin import serve
from gpucluster.sandbox.language.host import Children, PythonHost


def main(argv: list[str]) -> int:
    """Serve until the engine stops the process. Then stop all child processes."""
    children = Children()
    engine = next((one for one in reversed(argv) if not one.startswith("-")), "")
    host = PythonHost(engine, children)
    return serve(
        lambda server: language_pb2_grpc.add_LanguageRuntimeServicer_to_server(host, server), children.end
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
