"""Benchmarks. Each prints one JSON object per line: {name, value, unit, limit, ratio}."""
