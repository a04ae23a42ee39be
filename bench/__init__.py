"""Figures: each bench prints JSON objects, one a line: {name, value, unit, limit, ratio}."""
