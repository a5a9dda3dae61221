"""Kernels of plans, by way of a kernel cache."""

from functools import partial
from pathlib import Path

from jitlto.link.kernel_cache import KernelCache
from jitlto.link.packs import Pack
from jitlto.link.sources import KERNELS
from jitlto.plan.cache_entry import LinkedKernel
from jitlto.plan.plan import Plan


def get_or_link(cache: KernelCache, plan: Plan, database: Path | None = None) -> LinkedKernel:
    """The kernel of a plan, found in a cache or linked into it."""
    return cache.get_or_link(plan.link_key, partial(plan.link, use_cache=False), database or plan.database.path)


def packed_digests(path: Path) -> list[str]:
    """The digests of the plans whose kernels are in a pack, sorted."""
    return [key for kind, key, _ in Pack(path).iterate() if kind == KERNELS]


def entry(plan: Plan) -> bytes:
    """The entry of a plan's kernel, linked now."""
    return plan.link_key.encode(plan.link(use_cache=False))
