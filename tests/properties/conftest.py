"""Fixtures only: a place for many small worlds."""

import shutil
import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def quick():
    """Return a folder in memory, where there is one: a ledger waits for its disk at every step."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
    yield folder
    shutil.rmtree(folder)
