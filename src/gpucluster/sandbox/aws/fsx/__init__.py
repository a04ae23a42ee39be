"""Amazon FSx for Lustre: state and calls."""
