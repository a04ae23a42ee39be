"""Amazon EFS: state and calls."""
