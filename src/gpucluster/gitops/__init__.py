"""The effects of a spec change: changes with their update class, the monthly cost, and reports.

`diff` works on values from the command line. The package reads no file and no clock and runs no program.
"""
