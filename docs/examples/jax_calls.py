"""Kernels of the families ``search`` and ``fft`` called from JAX, and a small model that uses them.

To use the example, copy it and ``operators.py``: a package that ships kernels has modules like these beside its
database. In a checkout, after ``jitlto build search fft -o kernels.fragdb``::

    export JITLTO_DATABASE_PATH=kernels.fragdb

    import jax
    from docs.examples.jax_calls import initial, quantise

    parameters = initial(jax.random.key(1), size=1024, codes=256)
    indices, distances = jax.jit(quantise)(parameters, jax.random.uniform(jax.random.key(2), (100, 1024)))
"""

from functools import cache
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

import jitlto
from docs.examples.operators import declare_nearest, declare_spectrum

Parameters: TypeAlias = dict[str, jax.Array]


@cache
def nearest() -> Any:
    """Return the function of :func:`docs.examples.operators.declare_nearest`."""
    return jitlto.jax_call(declare_nearest(index="uint32"))


@cache
def spectrum() -> Any:
    """Return the function of :func:`docs.examples.operators.declare_spectrum`."""
    return jitlto.jax_call(declare_spectrum())


def initial(key: jax.Array, size: int, codes: int) -> Parameters:
    """Return parameters: a filter of signals of a length, a power of two, and so many spectra."""
    codebook = jnp.abs(jax.random.normal(key, (codes, size // 2 + 1)))
    return {"filter": jnp.ones(size), "codebook": codebook}


def fold(size: int, dtype: Any = jnp.float32) -> jax.Array:
    """Return the weights of a spectrum's elements in the gradient: half of what stands for two conjugate ones."""
    return jnp.full(size // 2 + 1, 0.5, dtype).at[jnp.array([0, -1])].set(1)


def magnitudes(parameters: Parameters, signals: jax.Array) -> jax.Array:
    """Return the magnitudes of the spectra of signals of the shape (m, size)."""
    size = signals.shape[-1]
    window = jnp.hanning(size + 1)[:-1].astype(signals.dtype)  # periodic
    transformed = spectrum()(signals * parameters["filter"], window, fold(size, signals.dtype))
    return jnp.real(transformed) ** 2 + jnp.imag(transformed) ** 2


def quantise(parameters: Parameters, signals: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return for each signal the nearest spectrum of the codebook and the squared distance from it."""
    spectra, codebook = jnp.log1p(magnitudes(parameters, signals)), parameters["codebook"]
    indices, _ = nearest()(jax.lax.stop_gradient(codebook), jax.lax.stop_gradient(spectra))
    return indices, ((codebook[indices] - spectra) ** 2).sum(-1)
