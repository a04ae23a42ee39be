"""Shared parts of tests: specs, plans, stand-ins and scenarios."""
