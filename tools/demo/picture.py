"""Draw the timeline of a demo run as SVG: one row a stage, one bar from the first node to the last. Pure."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

STAGES: Mapping[str, str] = {  # event of the timeline -> its label
    "submitted": "job submitted",
    "power-up": "nodes requested",
    "launched": "instances launched",
    "booted": "instances booted",
    "registered": "slurmd registered",
    "running": "job running",
    "idle": "nodes idle",
    "gone": "instances terminated",
}
WIDTH, ROW, TOP, LEFT, RIGHT = 900, 34, 62, 190, 130
FONT = "font-family='Helvetica, Arial, sans-serif'"


def spans(events: Sequence[Mapping[str, Any]]) -> dict[str, tuple[float, float]]:
    """Stage -> seconds since the submission of its first and its last event; KeyError names a missing stage."""
    start = min(e["at"] for e in events if e["what"] == "submitted")
    found: dict[str, tuple[float, float]] = {}
    for stage in STAGES:
        times = [e["at"] - start for e in events if e["what"] == stage]
        if not times:
            raise KeyError(stage)
        found[stage] = (round(min(times), 1), round(max(times), 1))
    return found


def svg(stages: Mapping[str, Sequence[float]], title: str) -> str:
    """The picture; equal stages give equal bytes."""
    end = max(last for _, last in stages.values()) or 1.0
    scale = (WIDTH - LEFT - RIGHT) / end
    height = TOP + ROW * len(stages) + 16
    rows = [_row(i, name, *stages[name], scale) for i, name in enumerate(STAGES)]
    grid = [_grid(second, scale, height) for second in range(0, int(end) + 1, _step(end))]
    return "\n".join([
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{height}' viewBox='0 0 {WIDTH} {height}' role='img'>",
        f"<title>{escape(title)}</title>",
        f"<rect width='{WIDTH}' height='{height}' fill='#ffffff'/>",
        f"<text x='16' y='26' font-size='16' font-weight='bold' fill='#1f2933' {FONT}>{escape(title)}</text>",
        *grid, *rows, "</svg>", "",
    ])  # fmt: skip


def _row(index: int, name: str, first: float, last: float, scale: float) -> str:
    y = TOP + index * ROW
    x, width = LEFT + first * scale, max(4.0, (last - first) * scale)
    time = f"{first:.1f} s" if first == last else f"{first:.1f} to {last:.1f} s"
    return (
        f"<text x='{LEFT - 12}' y='{y + 16}' font-size='13' text-anchor='end' fill='#1f2933' {FONT}>{escape(STAGES[name])}</text>"
        f"<rect x='{x:.1f}' y='{y + 4}' width='{width:.1f}' height='16' rx='3' fill='#2f6f4f'/>"
        f"<text x='{x + width + 8:.1f}' y='{y + 16}' font-size='12' fill='#52606d' {FONT}>{time}</text>"
    )


def _grid(second: int, scale: float, height: int) -> str:
    x = LEFT + second * scale
    return (
        f"<line x1='{x:.1f}' y1='{TOP - 10}' x2='{x:.1f}' y2='{height - 12}' stroke='#e4e7eb'/>"
        f"<text x='{x:.1f}' y='{TOP - 16}' font-size='11' text-anchor='middle' fill='#7b8794' {FONT}>{second} s</text>"
    )


def _step(end: float) -> int:
    return next(step for step in (1, 2, 5, 10, 20, 60, 600) if end / step <= 12 or step == 600)
