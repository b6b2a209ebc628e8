"""Properties are tried on the same examples every time; --hypothesis-profile=deep looks for new ones."""

from hypothesis import settings

settings.register_profile("core", max_examples=40, deadline=None, derandomize=True, database=None)
settings.register_profile("deep", max_examples=2000, deadline=None, database=None)
settings.load_profile("core")
