"""Write a diff for people, programs and pull requests. Text from a spec is untrusted: each format escapes it."""
