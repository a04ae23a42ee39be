"""The fleet: hooks, spool, journal, observe, decide, act, daemon."""
