"""Masks secrets in texts. It imports only dialects, so that errors can use it."""
