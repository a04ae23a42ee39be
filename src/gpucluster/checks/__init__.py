"""What is asked of a cluster to know that it is healthy: a question, a parser, a rule and a remedy each.

Standard library only: nodes ask the same things of themselves. `table.CHECKS` has all of them.
"""
