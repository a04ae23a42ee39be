"""Times in Slurm's form."""


def slurm_time(seconds: int | None) -> str:
    """A time as `1-00:00:00`. Slurm counts minutes, so seconds are rounded up."""
    if seconds is None:
        return "UNLIMITED"
    minutes = -(-seconds // 60)
    days, hours = divmod(minutes // 60, 24)
    return f"{days}-{hours:02}:{minutes % 60:02}:00"


def slurm_seconds(seconds: int) -> str:
    """A time as `0-00:00:30`, for a key that Slurm reads in seconds."""
    minutes, rest = divmod(seconds, 60)
    days, hours = divmod(minutes // 60, 24)
    return f"{days}-{hours:02}:{minutes % 60:02}:{rest:02}"
