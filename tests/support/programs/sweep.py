"""A stand-in for one run of a sweep: it writes its arguments."""

import argparse
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--output", type=Path, required=True)
parser.add_argument("--lr", required=True)
parser.add_argument("--seed", type=int, required=True)
asked = parser.parse_args()
(asked.output / "result").write_text(f"{asked.lr} {asked.seed}\n")
