"""The idempotency patterns, one module each, named as in the literature."""
