"""What a change of a spec does: changes with their update class, the month's cost, and how that is reported.

`diff` composes values that the command line made; nothing here reads a file, a clock or a program.
"""
