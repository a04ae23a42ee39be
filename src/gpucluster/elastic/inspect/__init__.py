"""Read-only programs: why, timeline, the dry run of a pass, metrics, pools, and the readers of the head's files."""
