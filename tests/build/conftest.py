"""What the tests of the build side share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def _no_disk_to_wait_for() -> Iterator[None]:
    """Skip fsync: tests write hundreds of databases, and none must survive a power cut."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield
