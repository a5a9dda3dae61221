"""Launchers: linked, loaded kernels, ready to launch.

The compiled core launches, if there is one; the first two launches, and those that it leaves over, go the plain way
here and in :mod:`jitlto.launch.step`.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from jitlto.base.cached import cached_property, raise_copy
from jitlto.base.errors import JitltoError, LaunchError
from jitlto.base.events import Events, Kind
from jitlto.base.frozen import Shared
from jitlto.base.log import LinkWarning, warn
from jitlto.base.types import Parameter
from jitlto.cuda import device
from jitlto.cuda.device import stream_handle
from jitlto.cuda.libraries import Device, Kernel, ObjectCode, driver
from jitlto.launch.core import called
from jitlto.launch.step import (
    Extent,
    Packing,
    Shape,
    Step,
    check_shape,
    make_packing,
    parse_extent,
    start,
)
from jitlto.plan.cache_entry import Chosen, LinkedKernel

if TYPE_CHECKING:  # not needed by a launch
    from jitlto.launch.variables import Variable
    from jitlto.link.behind import Behind
    from jitlto.plan.plan import Plan

# Above this, static and dynamic together, a kernel has to opt in to dynamic shared memory (CUDA C++ Programming Guide).
_SHARED_WITHOUT_OPT_IN = 48 * 1024
_changing = threading.Lock()  # which kernel is in use, and what it is granted


@called
class Launcher(Shared):
    """A kernel that is linked and loaded.

    It launches in the current context, on every device of the architecture that it was linked for.

    Args:
        chosen: The kernel's name, digest and signature.
        linked: Its machine code.
        make_plan: Returns its plan; called on first use of :attr:`plan`.

    Raises:
        NoDeviceError: If there is no device to load it on.
        LaunchError: If the driver cannot load the code.
    """

    __slots__ = ("__dict__", "__weakref__")
    # What the compiled core reads: a signature, and the kernel's handles, the second in one context.
    _quick: object
    _kernel: int
    _function: int
    _granted: int  # bytes of dynamic shared memory that a launch may have as it is
    _fast: int  # whether launches that are captured are left to Python

    def __init__(self, chosen: Chosen, linked: LinkedKernel, make_plan: Callable[[], Plan]) -> None:
        device.current()
        self.chosen = chosen
        self.linked = linked
        self._make_plan = make_plan
        self._behind: Behind | None = None  # what links a better kernel
        self._failure: JitltoError | None = None  # of that
        begin = time.perf_counter()
        self._loaded: tuple[tuple[ObjectCode, Kernel], ...] = (_load(chosen, linked),)  # the last is in use
        #: Duration of loading, in seconds.
        self.load_seconds = time.perf_counter() - begin
        #: The handle, for any context, of the kernel in use, of the type that the driver's functions take as it is.
        self.handle = driver.CUfunction(int(self._loaded[-1][1].handle))
        self._granted = self._fast = 0
        self._launches = 0  # the plain way

    def __reduce__(self) -> tuple[Any, ...]:
        """Be planned and loaded again in another process: for the device there, if it is for the one here."""
        plan = self.plan
        return plan.make_family().load, (plan.for_arch(None) if plan.arch == device.architecture() else plan,)

    def __repr__(self) -> str:
        from jitlto.base.mangling import demangle

        return f"<Launcher {demangle(self.linked.entry)} for {self.linked.target}>"

    @cached_property
    def plan(self) -> Plan:
        """The plan that the kernel was linked from; planned on first use if the kernel was found in a cache.

        Raises:
            DatabaseError: If the database is gone, or was replaced by a different one.
        """
        return self._make_plan()

    @property
    def signature(self) -> Sequence[Parameter]:
        """The kernel's parameters."""
        return self.chosen.signature

    @cached_property
    def packing(self) -> Packing:
        """How arguments are packed; made at the first launch: a kernel may be loaded ahead and never be launched."""
        return make_packing(tuple(self.signature))

    @property
    def kernel(self) -> Kernel:
        """The kernel as ``cuda.core`` has it, with its ``attributes`` on each device and its ``occupancy``.

        Waits for the one that stays, as :meth:`wait` does.
        """
        return self.wait()._loaded[-1][1]

    @property
    def tier(self) -> str:
        """``fast`` while the kernel in use is one that was linked in no time, of cubins; else ``lto``."""
        return "fast" if self.linked.layer == "fast" else "lto"

    def wait(self) -> Launcher:
        """Wait until the kernel that is linked with LTO is in use, if it is not yet; return the launcher.

        If that fails, the launcher stays in the fast tier, and a :class:`LinkWarning` says why.
        """
        behind = self._behind  # which may be over before the next line
        if behind is not None:
            device.ensure_context()  # an error in a process that was forked meanwhile
            behind.wait()
        return self

    def insist(self) -> Launcher:
        """Wait as :meth:`wait` does, for who forbids the fast tier: if that fails, raise the error."""
        failure = self.wait()._failure
        if failure is not None:
            raise_copy(failure)
        return self

    def improve(
        self, link: Callable[[], LinkedKernel], warn_of: Callable[[LinkedKernel], object], events: Events
    ) -> None:
        """Have a better kernel linked behind the launches; it takes the place of the one in use.

        ``warn_of`` issues what nvJitLink warned of.
        """
        from jitlto.link.behind import Behind  # imported lazily: few kernels have two tiers

        _, context = driver.cuCtxGetCurrent()
        self._fast = 1
        self._behind = Behind(partial(self._improve, link, warn_of, events, context))
        self._behind.begin()  # not before it is known here: it may be done at once

    def later(self, job: Callable[[], object]) -> None:
        """Do a job that no launch needs: now, or behind the launches if something is done there."""
        behind = self._behind
        if behind is None:
            job()
        else:
            behind.also(job)

    def _improve(
        self,
        link: Callable[[], LinkedKernel],
        warn_of: Callable[[LinkedKernel], object],
        events: Events,
        context: object,
    ) -> None:
        if self._behind is None:
            return  # a filter made an error of its warning, whose turn it was not to be repeated
        kernel, failure = self.chosen.kernel, ""
        begin = time.perf_counter()
        try:
            linked = link()
            with events.step("exchange", kernel):
                driver.cuCtxPushCurrent(context)
                try:
                    self._exchange(linked)
                finally:
                    driver.cuCtxPopCurrent()
        except JitltoError as error:  # others, such as an interrupt, may not recur: who waits next tries again
            self._failure, failure = error.with_traceback(None), f"stays linked without LTO: {error}"
        try:
            if failure:
                warn(LinkWarning(f"{kernel} for {self.linked.target}", failure))
            else:
                events.emit(Kind.EXCHANGED, kernel, self.chosen.digest, time.perf_counter() - begin)
                warn_of(linked)
        finally:
            self._behind, self._fast = None, 0

    def _exchange(self, linked: LinkedKernel) -> None:
        """Load a kernel and have later launches take it; those under way, and graphs, keep the former."""
        loaded = _load(self.chosen, linked)
        handle = driver.CUfunction(int(loaded[1].handle))
        device.load_function(int(handle))  # now, not at the next launch
        with _changing:
            self._opt_in(loaded[1], self._granted)
            self._loaded = (*self._loaded, loaded)
            quick = getattr(self, "_quick", None)
            if quick is not None:
                del self._quick  # Python launches meanwhile, so that no launch by the core takes the former again
            self.handle = handle
            if quick is not None:
                self._use_core(quick)
            self.linked = linked  # last: who sees the tier launches it

    @property
    def cubin(self) -> bytes:
        """The machine code."""
        return self.linked.cubin

    def variable(self, name: str) -> Variable:
        """Return the address and size, on the current device, of a variable of the kernel's code.

        Each launcher has its own, on each device (in each context). It has all that are declared outside
        functions; one in a function may be removed or shrunk by the link, and the value of a ``const`` one be in code.

        Args:
            name: A ``__device__``, ``__constant__`` or ``__managed__`` variable: as in C++ (``ns::table``), or mangled.

        Raises:
            LaunchError: If the linked code has no such variable, or several.
        """
        from jitlto.launch.variables import find_variable  # few programs do

        return find_variable(self, self.wait()._loaded[-1][0].handle, name)

    def max_blocks(self, block: Extent, shared_memory: int = 0) -> int:
        """Return the number of blocks that the device can run at once: the largest grid of a cooperative launch.

        Args:
            block: Threads per block.
            shared_memory: Dynamic shared memory per block, in bytes.
        """
        threads = math.prod(parse_extent("block", block))
        self._grant(shared_memory)
        each = self.kernel.occupancy.max_active_blocks_per_multiprocessor(threads, shared_memory)
        return int(each) * int(device.current().properties.multiprocessor_count)

    def prepare(self) -> Launcher:
        """Have the driver load the code into the current context now, not at the first launch; return the launcher.

        Raises:
            LaunchError: If the driver cannot load it.
        """
        device.current()
        function, why = device.load_function(int(self.handle))
        if not function:
            raise LaunchError(
                f"the driver cannot load the kernel ({why})", code="launch-load", where=self.chosen.kernel
            )
        return self

    def step(
        self,
        grid: Extent,
        block: Extent,
        *args: Any,
        shared_memory: int = 0,
        cluster: Extent | None = None,
        cooperative: bool = False,
        programmatic: bool = False,
    ) -> Step:
        """Describe a launch for :func:`jitlto.sequence`, which checks it.

        Takes the arguments of :meth:`__call__` without the stream. An argument that is to be replaced later is given as
        a :class:`jitlto.Slot`.
        """
        return Step(self, grid, block, args, shared_memory, cluster, cooperative, programmatic)

    def __call__(
        self,
        stream: Any,
        grid: Extent,
        block: Extent,
        *args: Any,
        shared_memory: int = 0,
        cluster: Extent | None = None,
        cooperative: bool = False,
        programmatic: bool = False,
    ) -> None:
        """Launch the kernel.

        Args:
            stream (object): A ``cuda.core`` stream or graph builder, anything with ``__cuda_stream__``, a stream of
                CuPy, PyTorch or Numba, or a stream handle as an int; None for the device's default stream.
            grid: Number of blocks in one to three dimensions; always blocks, with clusters too.
            block: Threads per block in one to three dimensions.
            *args: One argument per parameter of the kernel. For a pointer: a C-contiguous device array of the declared
                dtype (``__cuda_array_interface__`` or DLPack), a buffer, a device address as an int, or None. For a
                structure: a ``ctypes.Structure``, a NumPy structured scalar or bytes.
            shared_memory: Dynamic shared memory per block, in bytes; above 48 KB it is requested from the driver.
            cluster: Blocks of a thread block cluster; divides ``grid``. None by default.
            cooperative: Run all blocks at the same time, so that they can synchronise.
            programmatic: Allow programmatic dependent launch: start before the previous kernel in the stream has ended.

        Raises:
            ArgumentError: (a TypeError) If an argument is missing or does not fit its parameter.
            LaunchError: If the launch configuration is invalid or the driver rejects the launch.
        """
        device.ensure_context()
        packing = self.packing
        packed = packing.pack(self.chosen.kernel, args)
        handle = stream_handle(stream)
        if self._behind is not None and device.is_capturing(handle):
            self.wait()  # no graph stays slow
        while True:
            used = self.handle
            try:
                shape = self.check(grid, block, shared_memory, cluster, cooperative)
                start(self, shape, shared_memory, cooperative, programmatic, handle, packed[1])
                break
            except LaunchError:  # a fast kernel may need more registers than so large a block has
                if self.wait().handle is used:
                    raise
        packing.give_back(packed)  # the driver has copied the values
        self._launches = launches = self._launches + 1  # of threads at the same time, one is the second
        if launches == 2 and type(self).__call__ is Launcher.__call__:
            # Not at the first launch: a kernel that is launched once should not wait for it.
            from jitlto.launch.signature import core_signature

            quick = core_signature(tuple(self.signature))
            if quick is not None:
                with _changing:
                    self._use_core(quick)

    def _use_core(self, quick: object) -> None:
        """Have the core launch the kernel in use."""
        self._kernel = int(self.handle)
        self._function, _ = device.load_function(self._kernel)
        self._quick = quick

    def check(
        self, grid: Extent, block: Extent, shared_memory: int, cluster: Extent | None, cooperative: bool
    ) -> Shape:
        """Return grid, block and cluster of a launch in three dimensions, and prepare the kernel for it.

        Raises:
            LaunchError: If the configuration is invalid, or more than the device has.
        """
        if (
            cluster is None and not cooperative and shared_memory == 0
            and type(grid) is type(block) is int and grid > 0 and block > 0
        ):  # fmt: skip
            return (grid, 1, 1), (block, 1, 1), None  # most are
        kernel = self.chosen.kernel
        whole, threads, part = check_shape(kernel, grid, block, shared_memory, cluster)
        self._grant(shared_memory)
        if cooperative and math.prod(whole) > self.max_blocks(block, shared_memory):
            what = f"grid {grid} is too large for a cooperative launch"
            hint = "at most launcher.max_blocks(block, shared_memory) blocks run at the same time"
            raise LaunchError(what, code="launch-failed", where=kernel, hint=hint)
        return whole, threads, part

    def _grant(self, size: int) -> None:
        """Request dynamic shared memory on every device of this architecture: they share launchers."""
        if size <= self._granted:
            return
        device.ensure_context()  # an error in a forked process, where the lock may be locked for ever
        with _changing:
            if size > self._granted:  # never lowered: launches that were configured with more would fail
                self._opt_in(self._loaded[-1][1], size)
                self._granted = size

    def _opt_in(self, kernel: Kernel, size: int) -> None:
        current = device.current()
        # The kernel's static shared memory counts too.
        if kernel.attributes[current.device_id].shared_size_bytes + size <= _SHARED_WITHOUT_OPT_IN:
            return
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        alike = [each for each in Device.get_all_devices() if each.compute_capability == current.compute_capability]
        for each in alike:
            (status,) = driver.cuKernelSetAttribute(attribute, size, int(kernel.handle), each.device_id)
            if status:
                what = f"the device does not grant {size} bytes of dynamic shared memory per block ({status.name})"
                hint = f"at most {current.properties.max_shared_memory_per_block_optin} bytes per block"
                raise LaunchError(what, code="launch-shared-memory", where=self.chosen.kernel, hint=hint)


def _load(chosen: Chosen, linked: LinkedKernel) -> tuple[ObjectCode, Kernel]:
    """Load a linked kernel.

    Raises:
        LaunchError: If the driver cannot load the code.
    """
    try:
        with device.allowed_in_captures():
            code = ObjectCode.from_cubin(linked.cubin, name=chosen.kernel)
            return code, code.get_kernel(linked.entry)
    except Exception as error:
        from jitlto.cuda.driver import explain_load_failure

        what, hint = explain_load_failure(linked.target, error)
        raise LaunchError(what, code="launch-load", where=chosen.kernel, hint=hint) from error
