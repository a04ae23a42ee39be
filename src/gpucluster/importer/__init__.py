"""An existing Slurm site becomes a spec for hosts: read its files, write the spec, compare the rendered files with them."""
