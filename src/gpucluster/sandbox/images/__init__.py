"""Images of machines, built once and cached."""
