"""A stand-in for inference: it answers each line, and refuses to write over an answer."""

import argparse
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--input", type=Path, required=True)
parser.add_argument("--output", type=Path, required=True)
asked = parser.parse_args()
if asked.output.exists():
    raise SystemExit(f"WRONG: {asked.output} exists")
asked.output.write_text("".join(f"answer to {line}\n" for line in asked.input.read_text().splitlines()))
