"""What users write is read by type checkers here, and never run."""

collect_ignore_glob = ["users/*"]
