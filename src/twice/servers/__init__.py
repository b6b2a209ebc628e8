"""Which real servers can be started here, for a demo or for tests?"""
