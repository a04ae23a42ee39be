"""Entry point for the engine: `--policy-pack policies`."""

import sys
from pathlib import Path

from gpucluster.engine.policy.analyzer import serve_pack

sys.exit(serve_pack(Path(__file__).parent))
