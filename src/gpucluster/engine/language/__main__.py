"""`python -m gpucluster.engine.language [FLAGS] ENGINE`: serve on a port of loopback, and print it."""

import sys

from pulumi.runtime.proto import language_pb2_grpc

from gpucluster.engine.language.host import Children, PythonHost
from gpucluster.engine.plugin import serve


def main(argv: list[str]) -> int:
    """Serve until the engine ends us, and take with us what we started."""
    children = Children()
    engine = next((one for one in reversed(argv) if not one.startswith("-")), "")
    host = PythonHost(engine, children)
    return serve(
        lambda server: language_pb2_grpc.add_LanguageRuntimeServicer_to_server(host, server), children.end
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
