"""Calls from JAX, without a GPU: XLA calls the handler on the CPU, and what stands for kernels computes with NumPy."""

import dataclasses
import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from jitlto import Operator, Scalar, Seam
from jitlto import jax_call as make
from jitlto.base.errors import NoDeviceError, OperatorError
from tests.support.errors import raises
from tests.support.jax_cpu import CpuLaunchers, CpuTarget, install
from tests.support.lazy import Lazy
from tests.support.operators import declare

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # other tests use the GPU, if there is one
jax, jax_call = Lazy("jax"), Lazy("jitlto.frameworks.jax_call")

_namespaces = (f"jitlto_jax{number}" for number in itertools.count())


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Iterator[CpuTarget]:
    with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
        yield install(monkeypatch)


@pytest.fixture
def operators(target: CpuTarget) -> dict[str, Operator]:
    return declare(lambda: CpuLaunchers(target), next(_namespaces))


def rows(m: int = 4, n: int = 6, dtype: Any = np.float32) -> Any:
    return jax.numpy.linspace(-3, 3, m * n, dtype=dtype).reshape(m, n)


def equal(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_call_computes_what_its_kernel_does_with_and_without_jit(operators: dict[str, Operator], dtype: Any) -> None:
    square, x = make(operators["square"]), rows(dtype=dtype)
    equal(square(x, 3.0), 3 * x * x)
    equal(square(x), x * x)
    equal(jax.jit(lambda x: square(x, factor=-2) + 1)(x), 1 - 2 * x * x)
    assert square(x).dtype == dtype


def test_several_outputs_flags_and_absent_arrays(operators: dict[str, Operator]) -> None:
    reduce_rows, x = make(operators["reduce_rows"]), rows()
    bits = jax.numpy.array([True, False, True, True, False, False])
    values, counts = jax.jit(lambda x, bits: reduce_rows(x, bits))(x, bits)
    equal(values, x[:, np.asarray(bits)].sum(1))
    assert counts.tolist() == [3] * 4
    assert counts.dtype == np.int64
    values, counts = jax.jit(lambda x: reduce_rows(x, reduction="largest"))(x)
    equal(values, x.max(1))
    assert counts.tolist() == [6] * 4


def test_what_the_kernel_writes_to_is_returned_and_the_argument_unchanged(operators: dict[str, Operator]) -> None:
    accumulate, total, x = make(operators["accumulate"]), jax.numpy.ones((4, 6), np.float32), rows()
    for call in (accumulate, jax.jit(accumulate), jax.jit(accumulate)):
        equal(call(total, x), 1 + x)
        equal(total, np.ones((4, 6)))
    equal(jax.jit(lambda t: accumulate(accumulate(t, x), x))(total), 1 + 2 * x)


def test_nothing_of_the_declaration_runs_on_execution(operators: dict[str, Operator], target: CpuTarget) -> None:
    square = jax.jit(make(operators["square"]))
    square(rows()).block_until_ready()
    prepared, launched = len(target.prepared), len(target.launches)
    for number in range(1, 4):
        equal(square(rows() + number), (rows() + number) ** 2)
    assert len(target.prepared) == prepared
    assert len(target.launches) == launched + 3
    assert target.launches[-1] == ("square", {"data_type": "float"}, (1, 1, 1, 256, 1, 1))


def test_numbers_that_are_equal_but_not_the_same_are_different_calls(operators: dict[str, Operator]) -> None:
    square, x = make(operators["square"]), rows() + 4
    for factor in (0.0, -0.0, 0.0):
        assert np.signbit(np.asarray(square(x, factor))).all() == (str(factor) == "-0.0")


@pytest.mark.slow
def test_vmap_makes_one_call_after_the_other(operators: dict[str, Operator], target: CpuTarget) -> None:
    batch = jax.numpy.stack([rows(), rows() + 1, rows() + 2])
    square = make(operators["square"])
    target.launches.clear()
    equal(jax.jit(jax.vmap(square))(batch), batch**2)
    assert len(target.launches) == 3
    equal(jax.vmap(square, in_axes=2, out_axes=1)(batch), np.moveaxis(np.asarray(batch**2), 2, 1))
    reduce_rows = make(operators["reduce_rows"])
    values, _ = jax.vmap(reduce_rows, in_axes=(0, None))(batch, jax.numpy.array([True] * 6))
    equal(values, batch.sum(2))
    accumulate = make(operators["accumulate"])
    equal(jax.vmap(accumulate, in_axes=(None, 0))(batch[0], batch), batch[0] + batch)


@pytest.mark.slow
def test_gradients_come_from_the_second_operator(operators: dict[str, Operator]) -> None:
    square, x = make(operators["square"]), rows(dtype=np.float64)
    for wrap in (lambda f: f, jax.jit):
        equal(wrap(jax.grad(lambda x: (square(x, 3.0) * x).sum()))(x), 9 * x * x)
    equal(jax.vmap(jax.grad(lambda row: square(row).sum()))(x), 2 * x)
    pytest.importorskip("jax.test_util").check_grads(lambda x: square(x, 0.5), (x,), order=1, modes=["rev"])


@pytest.mark.slow
@pytest.mark.parametrize("wrap", [lambda f: f, lambda f: jax.jit(f)], ids=["eager", "jit"])
def test_there_are_no_derivatives_in_forward_mode(operators: dict[str, Operator], wrap: Callable[..., Any]) -> None:
    square, accumulate = make(operators["square"]), make(operators["accumulate"])
    x = rows(2, 3)
    for function, error in ((square, TypeError), (lambda x: accumulate(x, x), NotImplementedError)):
        for differentiated in (jax.jacfwd(function), lambda x, f=function: jax.jvp(f, (x,), (x,))):
            with pytest.raises(error):
                wrap(differentiated)(x)


@pytest.mark.parametrize("default", [float("inf"), float("-inf"), float("nan"), -0.0])
def test_a_default_may_be_any_float(target: CpuTarget, default: float) -> None:
    declared = declare(lambda: CpuLaunchers(target), next(_namespaces))["square"]
    arguments = (declared.arguments[0], Scalar("factor", "float", default))
    square = make(dataclasses.replace(declared, arguments=arguments, backward=None))
    np.testing.assert_array_equal(np.asarray(square(rows() + 4)), np.float32(default) * (np.asarray(rows()) + 4) ** 2)


def test_without_anything_to_launch_results_are_zeros_and_arguments_unchanged(operators: dict[str, Operator]) -> None:
    empty = jax.numpy.zeros((0, 5), np.float32)
    assert jax.jit(make(operators["square"]))(empty).shape == (0, 5)
    assert make(operators["accumulate"])(empty, empty).shape == (0, 5)


def test_shapes_are_known_without_a_device(operators: dict[str, Operator], target: CpuTarget) -> None:
    shape = jax.ShapeDtypeStruct((3, 5), np.float32)
    values, counts = jax.eval_shape(make(operators["reduce_rows"]), shape)
    assert (values.shape, values.dtype, counts.shape, counts.dtype) == ((3,), np.float32, (3,), np.int64)
    assert "jitlto_launch" in jax.jit(make(operators["square"])).lower(shape).as_text()


def test_wrong_arguments_are_named(operators: dict[str, Operator]) -> None:
    reduce_rows, square = make(operators["reduce_rows"]), make(operators["square"])
    with raises(OperatorError, "operator-call", "x"):
        reduce_rows(rows()[0])
    with raises(OperatorError, "operator-call", "x", "int32"):
        square(jax.numpy.arange(3, dtype=np.int32))
    with raises(OperatorError, "operator-call", "factor", hint="static_argnames"):
        jax.jit(square)(rows(), 2.0)
    with raises(OperatorError, "operator-call", "reduction"):
        reduce_rows(rows(), None, 3)
    for wrong in (lambda: square(), lambda: square(rows(), 1.0, 2.0), lambda: square(rows(), x=1), lambda: square(y=1)):
        with pytest.raises(TypeError, match="argument"):
            wrong()


def test_64_bit_outputs_need_64_bit_types(operators: dict[str, Operator]) -> None:
    with jax.enable_x64(False), raises(OperatorError, "operator-call", "counts", hint="jax_enable_x64"):
        make(operators["reduce_rows"])(rows())


def test_what_the_driver_rejects_is_an_error_of_the_program(operators: dict[str, Operator], target: CpuTarget) -> None:
    square = jax.jit(make(operators["square"]))
    square(rows())
    target.status = 701
    with pytest.raises(Exception, match="701"):
        square(rows()).block_until_ready()
    target.status = 0
    equal(square(rows()), rows() ** 2)


def test_an_unknown_kernel_is_an_error_of_the_program(operators: dict[str, Operator], target: CpuTarget) -> None:
    lowered = jax.jit(make(operators["square"])).lower(rows(2, 5)).as_text()
    assert lowered.count("call = ") == 1
    jax_call.register(target)
    words = np.zeros(16, np.int64)
    call = jax.ffi.ffi_call(jax_call.TARGET, jax.ShapeDtypeStruct((2,), np.float32))
    for wrong, message in ((words, "not loaded"), (words[:3], "malformed")):
        with pytest.raises(Exception, match=message):
            call(call=wrong).block_until_ready()


def test_without_a_device_a_call_is_the_error_that_says_so(
    operators: dict[str, Operator], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not that of the driver, which a handler asks for its functions."""

    def launcher(*_: object, **__: object) -> None:
        raise NoDeviceError("no usable CUDA device")

    monkeypatch.setattr(CpuLaunchers, "launcher", launcher)
    monkeypatch.setattr(jax_call, "register", lambda _: pytest.fail("the driver is asked"))
    with raises(NoDeviceError):
        make(operators["square"])(rows())


def test_calls_need_the_compiled_core(target: CpuTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax_call, "extension", lambda: None)
    with raises(OperatorError, "operator-framework", hint="wheel"):
        jax_call.register(target)


@pytest.mark.parametrize("inputs", [{"b": "float"}, {"b": "float32", "c": "float32"}])
def test_functions_that_need_a_table_are_refused(operators: dict[str, Operator], inputs: dict[str, str]) -> None:
    seam, square = Seam("store", "y", ""), operators["square"]
    parameters = (*square.parameters, "epilogue")
    declared = dataclasses.replace(square, backward=None, parameters=parameters, epilogue=seam)
    call = make(declared.with_epilogue(" + ".join(["v", *inputs]), **inputs))
    with raises(OperatorError, "operator-call", "table", hint="numbers by their values"):
        call(rows(), *[2.0 if kind == "float" else rows(1, 1) for kind in inputs.values()])
