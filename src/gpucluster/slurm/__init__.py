"""Slurm: state words, the parser of its JSON, the client, hostlists, drain reasons, configuration files."""
