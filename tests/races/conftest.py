"""What decides by chance here, and how is it repeated?"""

import os
import secrets

import pytest


@pytest.fixture
def seed():
    chosen = int(os.environ.get("TWICE_SEED") or secrets.randbelow(10**6))
    print(f"seed {chosen}: repeat with TWICE_SEED={chosen}")
    return chosen
