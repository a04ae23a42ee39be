"""The monitors of a machine after its boot: interruptions, kernel log, job heartbeats."""
