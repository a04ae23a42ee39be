"""Pulumi hosted by us: find or build the engine, the stand-in AWS provider, run a program."""
