"""Launch configurations of a kernel, checked, with the dynamic shared memory that they need granted by the driver."""

from __future__ import annotations

import threading
from typing import TypeAlias

from cuda.bindings import driver
from cuda.core import Device, Kernel, LaunchConfig

from jitlto.cuda import device
from jitlto.errors import LaunchError

#: One to three extents, of a grid, a block or a cluster.
Extent: TypeAlias = int | tuple[int, ...]

# Above this, static and dynamic together, a kernel has to opt in to dynamic shared memory (CUDA C++ Programming Guide).
_SHARED_WITHOUT_OPT_IN = 48 * 1024
_granting = threading.Lock()


class ConfigMaker:
    """Makes launch configurations of one loaded kernel, which messages call ``name``."""

    def __init__(self, kernel: Kernel, name: str) -> None:
        self._kernel = kernel
        self._name = name
        self._granted = 0  # bytes of dynamic shared memory that the driver has granted

    def make(
        self,
        grid: Extent,
        block: Extent,
        shared_memory: int,
        cluster: Extent | None,
        cooperative: bool,
        programmatic: bool,
    ) -> LaunchConfig:
        """Make a configuration from the arguments of :meth:`Launcher.__call__ <jitlto.Launcher.__call__>`."""
        blocks, threads = parse_extent("grid", grid), parse_extent("block", block)
        clusters = None
        if cluster is not None:
            clusters = parse_extent("cluster", cluster)
            # cuda.core counts a grid with clusters in clusters; CUDA and jitlto count it in blocks.
            if any(extent % part for extent, part in zip(blocks, clusters, strict=True)):
                what = f"grid {grid} is not divisible by cluster {cluster}"
                raise self._error(what, "the grid counts blocks, with clusters too")
            blocks = (blocks[0] // clusters[0], blocks[1] // clusters[1], blocks[2] // clusters[2])
        if shared_memory < 0:
            raise self._error(f"invalid shared_memory {shared_memory}", "pass a number of bytes")
        try:
            self.grant(shared_memory)
            return LaunchConfig(
                grid=blocks,
                block=threads,
                cluster=clusters,
                shmem_size=shared_memory,
                is_cooperative=cooperative,
                programmatic_stream_serialization=programmatic,
            )
        except LaunchError:
            raise
        except Exception as error:
            hint = f"grid {grid}, block {block}, cluster {cluster}, {shared_memory} bytes of shared memory"
            raise self._error(f"invalid launch configuration: {error}", hint) from error

    def _error(self, what: str, hint: str) -> LaunchError:
        return LaunchError(what, code="launch-config", where=self._name, hint=hint)

    def grant(self, size: int) -> None:
        """Request dynamic shared memory on every device of this architecture: they share launchers."""
        if size <= self._granted:
            return
        current = device.current()
        # The kernel's static shared memory counts too.
        if self._kernel.attributes[current.device_id].shared_size_bytes + size <= _SHARED_WITHOUT_OPT_IN:
            return
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        with _granting:
            if size <= self._granted:  # never lowered: launches that were configured with more would fail
                return
            for other in Device.get_all_devices():
                if other.compute_capability != current.compute_capability:
                    continue
                (status,) = driver.cuKernelSetAttribute(attribute, size, int(self._kernel.handle), other.device_id)
                if status != driver.CUresult.CUDA_SUCCESS:
                    raise LaunchError(
                        f"the device does not grant {size} bytes of dynamic shared memory per block ({status.name})",
                        code="launch-shared-memory",
                        where=self._name,
                        hint=f"at most {current.properties.max_shared_memory_per_block_optin} bytes per block",
                    )
            self._granted = size


def parse_extent(name: str, value: Extent) -> tuple[int, int, int]:
    """Return an extent in three dimensions; raise :class:`LaunchError` unless it is one to three positive integers."""
    parts = tuple(value) if isinstance(value, tuple | list) else (value,)
    if not 1 <= len(parts) <= 3 or not all(isinstance(p, int) and not isinstance(p, bool) and p > 0 for p in parts):
        raise LaunchError(f"invalid {name} {value!r}", code="launch-config", hint="pass one to three positive integers")
    padded = (*parts, 1, 1)
    return (padded[0], padded[1], padded[2])
