"""Pulumi hosted by us: the CLI found or built, the stand-in AWS provider, and runs of a program.

Knows an endpoint, and no sandbox. `find_or_build` is light; `gpucluster.engine.run` imports pulumi.
"""

from gpucluster.engine.build import find_or_build

__all__ = ["find_or_build"]
