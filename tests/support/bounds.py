"""The bound of waits in tests with real daemons."""

BOUND_S = 600.0  # only a test that hangs takes so long, not one on a busy machine
