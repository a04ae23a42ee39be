"""A word from time to time while something takes long and says nothing."""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from gpucluster.cli.output import progress

EVERY_S = 10.0
Tell = Callable[[str], None]


@contextmanager
def still(words: Callable[[], str], tell: Tell = progress, every_s: float = EVERY_S) -> Generator[None]:
    """Tell `words()` each so often until the work inside is done; empty ones are not told."""
    done = threading.Event()

    def speak() -> None:
        while not done.wait(every_s):
            if said := words():
                tell(said)

    speaker = threading.Thread(target=speak, daemon=True)
    speaker.start()
    try:
        yield
    finally:
        done.set()
        speaker.join()


@contextmanager
def steps(
    tell: Tell = progress, every_s: float = EVERY_S, clock: Callable[[], float] = time.monotonic
) -> Generator[Tell]:
    """What tells a step with the seconds since the start, and, while no other follows, that it still goes on."""
    started = clock()
    last, at = "", started

    def line(text: str) -> str:
        return f"{clock() - started:6.1f} s  {text}"

    def step(text: str) -> None:
        nonlocal last, at
        last, at = text, clock()
        tell(line(text))

    def silent() -> str:
        return line(f"still {last}") if last and clock() - at >= every_s else ""

    with still(silent, tell, every_s):
        yield step
