"""Coverage-guided fuzzing of everything that reads what strangers send: see README.md beside this."""
