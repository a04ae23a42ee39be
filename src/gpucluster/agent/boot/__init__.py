"""The steps of a boot and the runner that carries them out."""
