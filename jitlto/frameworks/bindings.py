"""The two frameworks that operators are made for; each is imported when the first operator is made for it."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from jitlto.base.errors import OperatorError
from jitlto.base.text import check_type
from jitlto.frameworks.declaration import Operator


def torch_operator(operator: Operator) -> Any:
    """Register an operator with PyTorch and return it, which is ``torch.ops.<namespace>.<name>.default``.

    It runs on CUDA tensors, on their device and in its current stream; ``torch.compile`` and ``torch.export`` trace it
    without a graph break, and gradients flow if the declaration has a ``backward``. Tensors that are not contiguous are
    copied first. A second declaration of a name replaces the first, so that a cell of a notebook can be run again.

    Args:
        operator: The declaration.

    Raises:
        OperatorError: If PyTorch is not installed, or a library has defined an operator of this name.
    """
    module = _load("torch_operator", "PyTorch", "install torch")
    check_type(operator, Operator, "an operator must be a declaration")
    return module.register(operator)


def torch_fusion() -> Any:
    """Return a pass of Inductor that fuses element-wise operations into operators that declare seams for them.

    For ``torch.compile(function, options={"post_grad_custom_post_pass": jitlto.torch_fusion()})``, or for
    ``torch._inductor.config.post_grad_custom_post_pass``. What cannot be fused is left alone, and said on the standard
    error with ``JITLTO_LOG=fusion``.

    Raises:
        OperatorError: If PyTorch is not installed, or has no such passes.
    """
    return _load("torch_fusion", "PyTorch", "install torch 2.9 or later").Fusion()


def jax_call(operator: Operator) -> Callable[..., Any]:
    """Return a function of JAX that calls an operator on arrays on a GPU.

    It works under ``jax.jit``, ``jax.vmap`` (one call after the other) and, if the declaration has a ``backward``,
    ``jax.grad``, and does not keep a program out of command buffers. Flags and scalars are numbers or texts, not
    arrays: a program is compiled for them. Arrays that the kernel writes to are not changed: their new contents are
    returned after the outputs.

    Args:
        operator: The declaration.

    Raises:
        OperatorError: If JAX is not installed.
    """
    module = _load("jax_call", "JAX", "install jax[cuda12] or jax[cuda13]")
    check_type(operator, Operator, "an operator must be a declaration")
    function: Callable[..., Any] = module.make_function(operator)
    return function


def _load(module: str, framework: str, hint: str) -> Any:
    """Import the module for a framework."""
    try:
        return import_module(f"jitlto.frameworks.{module}")
    except ImportError as error:
        what = f"{framework} cannot be imported: {error}"
        raise OperatorError(what, code="operator-framework", hint=hint) from None
