"""A diff for people, for programs and for a pull request. What comes from a spec is hostile: each format escapes it."""
