"""Run Pulumi: find or build the CLI, prepare a target, and run a program with the engine.

The package does not depend on the sandbox. `find_or_build` is a light import; `gpucluster.engine.run` imports pulumi.
"""

from gpucluster.engine.build import find_or_build

__all__ = ["find_or_build"]
