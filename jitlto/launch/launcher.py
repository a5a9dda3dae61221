"""Launchers: linked, loaded kernels, ready to launch; and their launch configurations.

One module, longer than most: a further one would make a cold launch 0.2 ms longer.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from operator import index
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias, TypeVar

from jitlto.base.errors import JitltoError, LaunchError
from jitlto.base.frozen import Shared
from jitlto.base.types import Parameter
from jitlto.cuda import device
from jitlto.cuda.libraries import Device, Kernel, LaunchConfig, ObjectCode, Stream, driver, launch
from jitlto.launch.arguments import ArgumentConverter
from jitlto.launch.core import extension
from jitlto.plan.cache_entry import Chosen, LinkedKernel

if TYPE_CHECKING:  # not needed by a launch
    from types import ModuleType
    from typing import TypedDict, Unpack

    from jitlto.launch.resources import Resources
    from jitlto.launch.sequence import Step
    from jitlto.plan.plan import Plan

    class LaunchAttributes(TypedDict, total=False):
        """The keyword arguments of a launch, which :func:`read_attributes` reads."""

        shared_memory: int
        cluster: Extent | None
        cooperative: bool
        programmatic: bool


_NOTHING_LAUNCHED = (object(),) * 5
_MOST_CONFIGS = 4096  # bounds the memory of callers that use a new grid in every launch
_Class = TypeVar("_Class")
#: One to three extents, of a grid, a block or a cluster.
Extent: TypeAlias = SupportsIndex | tuple[SupportsIndex, ...]

# Above this, static and dynamic together, a kernel has to opt in to dynamic shared memory (CUDA C++ Programming Guide).
_SHARED_WITHOUT_OPT_IN = 48 * 1024
_granting = threading.Lock()


def read_attributes(
    *, shared_memory: int = 0, cluster: Extent | None = None, cooperative: bool = False, programmatic: bool = False
) -> tuple[int, Extent | None, bool, bool]:
    """Return the attributes of a launch in the order of :meth:`ConfigMaker.make`, those that are not given too."""
    return shared_memory, cluster, cooperative, programmatic


read_attributes.__qualname__ = "Launcher.__call__"  # what the TypeError for another name says


class Launcher(Shared):
    """A kernel that is linked and loaded.

    It launches in the current context, on every device of the architecture that it was linked for.

    Args:
        chosen: The kernel's name, digest and signature.
        linked: Its machine code.
        make_plan: Returns its plan; called on first use of :attr:`plan`.
        core: The compiled core of launches, if that is to launch it.

    Raises:
        NoDeviceError: If there is no device to load it on.
        LaunchError: If the driver cannot load the code.
    """

    # In a slot, which the compiled core reads without a look-up.
    __slots__ = ("__dict__", "__weakref__", "_compiled_state")
    _compiled_state: object  # of the compiled core, if that launches
    _called_method: Callable[..., None] | None
    _has_launched = False  # set on the class of a signature, after the first launch of a kernel with that signature
    _fast_call: Callable[..., None] | None = None  # set there at the second
    _core: ModuleType | None = None  # set there if the compiled core calls them

    def __new__(cls, chosen: Chosen, *_: object, core: ModuleType | None = None, **_more: object) -> Launcher:
        """Create an instance of the signature's own class, because Python looks ``__call__`` up in the class."""
        own = _signature_class(cls, tuple(chosen.signature), core)  # type: ignore[arg-type]  # a class can be hashed
        made: Launcher = object.__new__(own) if own._core is None else own.__new__(own)  # type: ignore[call-arg]
        return made

    def __init__(
        self,
        chosen: Chosen,
        linked: LinkedKernel,
        make_plan: Callable[[], Plan],
        *,
        core: ModuleType | None = None,  # noqa: ARG002 - for __new__
    ) -> None:
        device.current()
        self.chosen = chosen
        self.linked = linked
        self._make_plan = make_plan
        self._plan: Plan | None = None
        begin = time.perf_counter()
        try:
            with device.allowed_in_captures():
                from_code = ObjectCode.from_ptx if linked.is_ptx else ObjectCode.from_cubin
                self._code = from_code(linked.cubin, name=chosen.kernel)
                self.kernel: Kernel = self._code.get_kernel(linked.entry)
        except Exception as error:
            from jitlto.cuda.driver import explain_load_failure

            what, hint = explain_load_failure(linked.target, linked.cubin, error)
            raise LaunchError(what, code="launch-load", where=chosen.kernel, hint=hint) from error
        #: Duration of loading, in seconds.
        self.load_seconds = time.perf_counter() - begin
        self._converter: ArgumentConverter | None = None
        self._config_maker = ConfigMaker(self.kernel, chosen.kernel)
        self._configs: dict[object, LaunchConfig] = {}
        # Grid, block and configuration of the last launch, and its stream before and after it was converted.
        self._last: tuple[object, ...] = _NOTHING_LAUNCHED

    @classmethod
    def from_plan(cls, plan: Plan, linked: LinkedKernel) -> Launcher:
        """Load the linked kernel of a plan."""
        return cls(plan.chosen, linked, lambda: plan, core=extension())

    def __reduce__(self) -> tuple[Any, ...]:
        """Be planned and loaded again in another process: for the device there, if it is for the one here."""
        plan = self.plan
        return plan.make_family().load, (plan.for_arch(None) if plan.arch == device.architecture() else plan,)

    def __repr__(self) -> str:
        from jitlto.base.mangling import demangle

        return f"<Launcher {demangle(self.linked.entry)} for {self.linked.target}>"

    @property
    def plan(self) -> Plan:
        """The plan that the kernel was linked from; planned on first use if the kernel was found in a cache.

        Raises:
            DatabaseError: If the database is gone, or was replaced by a different one.
        """
        if self._plan is None:
            self._plan = self._make_plan()
        return self._plan

    @property
    def signature(self) -> Sequence[Parameter]:
        """The kernel's parameters."""
        return self.chosen.signature

    @property
    def _convert(self) -> ArgumentConverter:
        """The converter of arguments, made at the first launch: a kernel may be loaded ahead and never be launched."""
        if self._converter is None:
            self._converter = ArgumentConverter(self.chosen.kernel, self.signature)
        return self._converter

    @property
    def cubin(self) -> bytes:
        """The machine code, or the PTX that the driver compiled."""
        return self.linked.cubin

    def ptx(self) -> str:
        """Return the PTX that link-time optimisation makes of the plan.

        Raises:
            LinkError: If the plan is linked without link-time optimisation.
            DatabaseError: As :attr:`plan`.
        """
        return self.plan.link_ptx(self.linked.architecture)

    def sass(self) -> str:
        """Return the machine code, disassembled by nvdisasm.

        Raises:
            ToolchainError: If nvdisasm is not installed.
        """
        from jitlto.cuda.nvdisasm import disassemble

        return disassemble(self.cubin).decode("utf-8", "replace")

    @property
    def resources(self) -> Resources:
        """The resources of the current device that the kernel uses."""
        from jitlto.launch.resources import read_resources

        return read_resources(self.kernel)

    def explain(self) -> str:
        """Return a description in a few lines: the kernel's parts, the origin of its code, and the resources it uses.

        Raises:
            DatabaseError: As :attr:`plan`.
        """
        from jitlto.launch.resources import describe

        return describe(self.plan, self.chosen.digest, self.signature, self.linked, self.resources)

    def occupancy(self, block: Extent, shared_memory: int = 0) -> float:
        """Return the fraction of a multiprocessor's threads that blocks of this kernel can fill, from 0 to 1.

        Args:
            block: Threads per block.
            shared_memory: Dynamic shared memory per block, in bytes.
        """
        x, y, z = parse_extent("block", block)
        threads = x * y * z
        most: int = device.current().properties.max_threads_per_multiprocessor
        return self.blocks_per_multiprocessor(block, shared_memory) * threads / most

    def blocks_per_multiprocessor(self, block: Extent, shared_memory: int = 0) -> int:
        """Return the number of blocks that fit on one multiprocessor; arguments as for :meth:`occupancy`."""
        x, y, z = parse_extent("block", block)
        self._config_maker.grant(shared_memory)
        return int(self.kernel.occupancy.max_active_blocks_per_multiprocessor(x * y * z, shared_memory))

    def max_blocks(self, block: Extent, shared_memory: int = 0) -> int:
        """Return the number of blocks that the device can run at once: the largest grid of a cooperative launch."""
        count = device.current().properties.multiprocessor_count
        return self.blocks_per_multiprocessor(block, shared_memory) * int(count)

    def best_block_size(self, shared_memory: int = 0, limit: int = 0) -> int:
        """Return the number of threads per block with the highest occupancy, according to the driver.

        Args:
            shared_memory: Dynamic shared memory per block, in bytes.
            limit: The largest allowed number of threads; 0 for the device's limit.
        """
        self._config_maker.grant(shared_memory)
        return int(self.kernel.occupancy.max_potential_block_size(shared_memory, limit).max_block_size)

    def prepare(self) -> Launcher:
        """Have the driver load the code into the current context now, not at the first launch; return the launcher.

        Raises:
            LaunchError: If the driver cannot load it.
        """
        device.current()
        with device.allowed_in_captures():
            status, _ = driver.cuKernelGetFunction(int(self.kernel.handle))
        if status != driver.CUresult.CUDA_SUCCESS:
            raise LaunchError(
                f"the driver cannot load the kernel ({status.name})", code="launch-load", where=self.chosen.kernel
            )
        return self

    def bind(
        self, stream: Any, grid: Extent, block: Extent, *args: Any, **attributes: Unpack[LaunchAttributes]
    ) -> Callable[[], None]:
        """Prepare a repeated launch: all arguments are checked and converted once, now.

        Takes the arguments of :meth:`__call__`. The returned function keeps the arrays and the stream alive.

        Returns:
            A function without arguments that launches the kernel; raises LaunchError if the driver rejects the launch.

        Raises:
            ArgumentError, LaunchError: As :meth:`__call__`.
        """
        how = read_attributes(**attributes)
        bound: Any
        bound, converted, config, values = self._prepare(stream, grid, block, args, *how)
        if self._core is not None and how[1:] == (None, False, False) and type(converted) is Stream:
            from jitlto.launch.compiled import bind_compiled  # imported lazily: not needed by a launch

            bound = bind_compiled(self, bound, values, config, converted, may_close=converted is stream)
        bound.arguments, bound.stream = args, stream
        return bound  # type: ignore[no-any-return]

    def _prepare(
        self,
        stream: Any,
        grid: Extent,
        block: Extent,
        args: tuple[Any, ...],
        shared_memory: int,
        cluster: Extent | None,
        cooperative: bool,
        programmatic: bool,
    ) -> tuple[BoundLaunch, Any, LaunchConfig, list[Any]]:
        """Check a launch; return a function for it, the stream of ``cuda.core``, the configuration and the values."""
        current = device.current()
        values = self._convert(args)
        config = self._config_maker.make(grid, block, shared_memory, cluster, cooperative, programmatic)
        converted = current.default_stream if stream is None else stream
        if type(converted) is not Stream:
            from jitlto.launch.streams import as_stream  # imported lazily: often not needed by the first launch

            converted = as_stream(converted, reusable=cluster is None and not cooperative)
        explain = partial(self._launch_error, grid=grid, block=block, shared_memory=shared_memory)
        return BoundLaunch((converted, config, self.kernel, *values), explain), converted, config, values

    def step(self, grid: Extent, block: Extent, *args: Any, **attributes: Unpack[LaunchAttributes]) -> Step:
        """Describe a launch for :func:`jitlto.sequence`, which checks it.

        Takes the arguments of :meth:`__call__` without the stream. An argument that is to be replaced later is given as
        a :class:`jitlto.Slot`.
        """
        from jitlto.launch.sequence import Step  # imported lazily: not needed by a launch

        return Step(self, grid, block, args, *read_attributes(**attributes))

    def __call__(
        self, stream: Any, grid: Extent, block: Extent, *args: Any, **attributes: Unpack[LaunchAttributes]
    ) -> None:
        """Launch the kernel.

        Args:
            stream (object): A ``cuda.core`` stream or graph builder, anything with ``__cuda_stream__``, a stream of
                CuPy, PyTorch or Numba, or a stream handle as an int; None for the device's default stream.
            grid: Number of blocks in one to three dimensions; always blocks, with clusters too.
            block: Threads per block in one to three dimensions.
            *args: One argument per parameter of the kernel. For a pointer: a C-contiguous device array of the declared
                dtype (``__cuda_array_interface__`` or DLPack), a buffer, a device address as an int, or None. For a
                structure: a ``ctypes.Structure``, a NumPy structured scalar, a dataclass or bytes.
            shared_memory: Dynamic shared memory per block, in bytes; above 48 KB it is requested from the driver.
            cluster: Blocks of a thread block cluster; divides ``grid``. None by default.
            cooperative: Run all blocks at the same time, so that they can synchronise.
            programmatic: Allow programmatic dependent launch: start before the previous kernel in the stream has ended.

        Raises:
            ArgumentError: (a TypeError) If an argument is missing or does not fit its parameter.
            LaunchError: If the launch configuration is invalid or the driver rejects the launch.
        """
        launcher_class = type(self)
        if launcher_class._has_launched:
            if launcher_class._fast_call is None:
                # At the second launch: it takes 0.5 ms, which a kernel that is launched once should not wait for.
                from jitlto.launch.compiled import install_call

                install_call(self.signature, self._convert, globals(), launcher_class, stream, args)
            if launcher_class._core is not None:  # an instance of such a class keeps what it calls
                self._called_method = launcher_class._fast_call
        launcher_class._has_launched = True
        self._prepare(stream, grid, block, args, *read_attributes(**attributes))[0]()

    def _configure(self, grid: Extent, block: Extent, *others: Any) -> LaunchConfig:
        """Create a configuration that the fast path has not seen, and remember it; without ``others``, a plain one."""
        device.current()
        config = self._config_maker.make(grid, block, *(others or read_attributes()))
        if len(self._configs) < _MOST_CONFIGS:
            with suppress(TypeError):  # an extent that cannot be hashed
                self._configs[grid, block, *others] = config
        return config

    def _launch_error(self, error: Exception, grid: Extent, block: Extent, shared_memory: int) -> LaunchError:
        return LaunchError(
            f"the launch failed: {error}",
            code="launch-failed",
            where=self.chosen.kernel,
            hint=f"grid {grid}, block {block}, {shared_memory} bytes of dynamic shared memory",
        )


class BoundLaunch:
    """A launch whose arguments were checked and converted once; made by :meth:`Launcher.bind`.

    Args:
        prepared: What ``cuda.core.launch`` takes.
        explain: Makes the error of a launch that fails.
    """

    def __init__(self, prepared: tuple[Any, ...], explain: Callable[[Exception], LaunchError]) -> None:
        self._prepared, self._explain = prepared, explain

    def __call__(self) -> None:
        """Launch the kernel.

        Raises:
            LaunchError: If the driver rejects the launch.
        """
        try:
            launch(*self._prepared)
        except JitltoError:
            raise
        except Exception as error:
            raise self._explain(error) from error

    def __reduce__(self) -> str:
        """Raise an error: neither a copy nor another process has its stream and its arrays."""
        raise JitltoError(
            "a bound launch can be neither copied nor sent to another process",
            code="jitlto-not-portable",
            where=repr(self),
            hint="send the launcher, and bind it again there",
        )


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
    numbers: tuple[int, ...] = ()
    with suppress(TypeError):  # NumPy's integers are integers
        numbers = tuple(index(part) for part in parts if not isinstance(part, bool))
    if not 1 <= len(parts) <= 3 or len(numbers) < len(parts) or min(numbers) < 1:
        raise LaunchError(f"invalid {name} {value!r}", code="launch-config", hint="pass one to three positive integers")
    padded = (*numbers, 1, 1)
    return (padded[0], padded[1], padded[2])


@cache
def _signature_class(base: type[Launcher], signature: tuple[Parameter, ...], core: ModuleType | None) -> type[Launcher]:
    """Create the class of a signature; a launch sets its fast ``__call__`` there."""
    made = subclass(base)
    size = sum(parameter.size + parameter.alignment for parameter in signature)
    if core is None or len(signature) > core.MOST_PARAMETERS or size > core.MOST_BYTES:
        return made
    called: type[Launcher] = core.make_called_class(made, made.__call__)
    called._core = core
    return called


def subclass(base: type[_Class], **members: Any) -> type[_Class]:
    """Create a class that differs from its base in nothing but some members."""
    return type(base.__name__, (base,), {"__doc__": base.__doc__, "__module__": base.__module__, **members})


def after_fork() -> None:
    """Make all launches in a forked process raise an error, because the driver cannot be used there."""
    global launch
    if device.is_used():
        launch = device.raise_forked_error
        if (core := sys.modules.get("jitlto.launch._launch")) is not None:
            core.forget()
