"""Tests of ``jitlto.runtime.tuning``."""
