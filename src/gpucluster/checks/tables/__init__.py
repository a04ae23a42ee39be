"""The rows of the table of checks, by subject. `checks.table` has all."""
