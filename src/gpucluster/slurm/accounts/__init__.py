"""Slurm's accounts: what the plan wants, what slurmdbd has, the difference, and the sacctmgr commands that remove it."""
