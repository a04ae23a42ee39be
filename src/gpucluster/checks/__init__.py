"""Checks of a cluster's health. Each has queries, a parser, a rule and a remedy; `table.CHECKS` has all of them.

Standard library only, so that machines can run them.
"""
