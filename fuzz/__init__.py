"""Coverage-guided fuzzing of the parsers of untrusted input; see README.md."""
