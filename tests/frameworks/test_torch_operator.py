"""Operators of PyTorch, without a GPU: tensors are on the CPU, and what would launch a kernel computes with NumPy."""

import io
import itertools
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jitlto import Array, Flag, Launch, Operator, Output, Scalar, torch_operator
from jitlto.base.errors import OperatorError
from tests.support.errors import raises
from tests.support.lazy import Lazy
from tests.support.operators import CpuBackend, CpuFamily, declare

torch, module = Lazy("torch"), Lazy("jitlto.frameworks.torch_operator")

_namespaces = (f"jitlto_test{number}" for number in itertools.count())


class World:
    """Operators of a namespace of their own on the CPU."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.family, self.backend = CpuFamily(), CpuBackend()
        monkeypatch.setattr(module, "make_backend", lambda: self.backend)
        self.namespace = next(_namespaces)
        self.declared = declare(lambda: self.family, self.namespace)

    def __getattr__(self, name: str) -> Any:
        return torch_operator(self.declared[name])


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


@pytest.fixture
def compiled() -> Iterator[Callable[..., Any]]:
    """``torch.compile`` without graph breaks; ``backend="inductor"`` takes most of a minute for its first code."""
    torch._dynamo.reset()
    yield lambda function, backend="aot_eager": torch.compile(function, fullgraph=True, backend=backend)
    torch._dynamo.reset()


def rows(m: int = 4, n: int = 6, dtype: Any = None) -> Any:
    return torch.linspace(-3, 3, m * n, dtype=dtype or torch.float32).reshape(m, n)


# --- calls ---


def test_an_operator_computes_what_its_kernel_does(world: World) -> None:
    x = rows()
    for _ in range(3):  # the first call goes another way than the others
        torch.testing.assert_close(world.square(x, 3.0), 3 * x * x)
        torch.testing.assert_close(world.square(x), x * x)
    values, counts = world.reduce_rows(x, None, "largest")
    assert values.tolist() == x.max(1).values.tolist()
    assert counts.tolist() == [6] * 4


def test_a_launch_has_the_configuration_that_is_declared_right_or_wrong(world: World) -> None:
    for launch, attributes in (
        (Launch(2, 0), {}),
        (Launch((2, 1), 32, 64, cooperative=True), {"shared_memory": 64, "cooperative": True}),
    ):
        torch_operator(replace(world.declared["square"], launch=lambda _, launch=launch: launch, backward=None))
        getattr(torch.ops, world.namespace).square(rows())
        *_, grid, block, _, given = world.family.launches[-1]
        assert (grid, block, given) == (launch.grid, launch.block, attributes)


def test_an_optional_array_may_be_left_out(world: World) -> None:
    x, bits = rows(), torch.tensor([True, False, True, True, False, False])
    for _ in range(2):
        values, counts = world.reduce_rows(x, bits)
        torch.testing.assert_close(values, x[:, bits].sum(1))
        assert counts.tolist() == [3] * 4
        torch.testing.assert_close(world.reduce_rows(x)[0], x.sum(1))


def test_mutated_arguments_are_written_in_place_and_autograd_is_told(world: World) -> None:
    total, x = torch.zeros(4, 6), rows()
    version = total._version
    for number in range(1, 4):
        assert world.accumulate(total, x) is None
        torch.testing.assert_close(total, number * x)
        assert total._version == version + number


@pytest.mark.parametrize("make", [lambda x: x.t(), lambda x: x[:, ::2], lambda x: x[1], lambda x: x.expand(3, 4, 6)])
def test_tensors_of_any_strides_are_taken(world: World, make: Callable[[Any], Any]) -> None:
    x = make(rows())
    for _ in range(2):
        torch.testing.assert_close(world.square(x), x * x)


def test_operators_are_called_by_keyword_and_without_autograd(world: World) -> None:
    x = rows()
    torch.testing.assert_close(world.square(factor=2.0, x=x), 2 * x * x)
    with torch.inference_mode():
        total = torch.zeros(4, 6)
        world.accumulate(total, x)
        torch.testing.assert_close(world.square(total), x * x)


def test_empty_tensors_launch_nothing(world: World) -> None:
    for _ in range(2):
        assert world.square(torch.empty(0, 3)).shape == (0, 3)
    assert world.family.launches == []


def test_calls_that_do_not_fit_the_declaration_are_errors(world: World) -> None:
    for wrong in (torch.ones(3, 4, dtype=torch.int32), torch.ones(3, 4, dtype=torch.float16)):
        with raises(OperatorError, "operator-call", "x", "float32 or float64", where="::square"):
            world.square(wrong)
    with raises(OperatorError, "operator-call", "bits", where="::reduce_rows"):
        world.reduce_rows(rows(), torch.ones(5, dtype=torch.bool))


def test_tensors_on_another_device_are_refused(world: World) -> None:
    call = module.Implementation(world.declared["accumulate"], world.backend).call
    with raises(OperatorError, "operator-call", "x", "meta", where="::accumulate", hint="cpu"):
        call(torch.zeros(3), torch.empty(3, device="meta"))
    with torch._subclasses.FakeTensorMode(), raises(OperatorError, "operator-call", "x", "meta", hint="cpu"):
        world.accumulate(torch.zeros(3), torch.empty(3, device="meta"))


def test_a_launch_is_on_the_tensors_device_and_in_its_current_stream(world: World) -> None:
    world.backend.current = 5
    world.square(rows())
    assert world.backend.guarded == [-1]
    assert world.backend.current == 5
    world.backend.current_stream = 77
    world.square(rows())
    assert [launch[2] for launch in world.family.launches] == [1, 77]  # 1 is the default stream


def test_memory_is_kept_for_streams_that_are_not_the_default_one(world: World) -> None:
    x, bits = rows(), torch.ones(6, dtype=torch.bool)
    world.reduce_rows(x, bits)
    assert world.backend.kept == []
    world.backend.current_stream = 77
    for y in (x, rows(5)):  # of shapes that are known and new
        world.backend.kept.clear()
        world.reduce_rows(y, bits)
        assert world.backend.kept == [y.data_ptr(), bits.data_ptr()]
    world.backend.kept.clear()
    world.square(x.t())  # the copy that the kernel reads, and the tensor that the copy is made from
    assert world.backend.kept[1:] == [x.data_ptr()]
    assert world.backend.kept[0] != x.data_ptr()


def test_many_shapes_are_forgotten_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jitlto.frameworks.torch_kernel._MOST_CALLS", 3)
    for size in (1, 2, 3, 4, 5, 1):
        assert world.square(torch.full((size,), 2.0)).tolist() == [4.0] * size


# --- registration ---


def test_a_declaration_is_one_operator_of_torch_ops(world: World) -> None:
    assert world.square is world.square
    assert world.square is getattr(torch.ops, world.namespace).square.default


def test_a_second_declaration_of_a_name_replaces_the_first(world: World) -> None:
    first = world.square
    other = declare(lambda: world.family, world.namespace)["square"]
    second = torch_operator(other)
    assert second is not first
    torch.testing.assert_close(second(rows()), rows() ** 2)


def test_an_operator_of_another_library_is_not_replaced(world: World) -> None:
    library = torch.library.Library(world.namespace, "FRAGMENT")
    library.define("square(Tensor x) -> Tensor")
    with raises(OperatorError, "operator-framework", where=f"{world.namespace}::square"):
        _ = world.square
    library._destroy()


def test_the_schema_has_mutations_defaults_and_symbols() -> None:
    operator = Operator(
        "ns::op",
        CpuFamily,
        (
            Array("x", "float32", "n", mutated=True),
            Scalar("size", "int"),
            Array("y", "float32", "n", optional=True, mutated=True),
            Scalar("factor", "float", 0.5),
            Flag("deep", "bool", False),
            Flag("k", "int", 3),
            Flag("mode", "str", 'say "a\\b"'),
        ),
        (Output("a", "float32", "n"), Output("b", "float32", "n")),
        lambda _: {},
        lambda _: Launch(1, 1),
        ("x",),
    )
    text = module.schema(operator)
    assert text == (
        "op(Tensor(a0!) x, SymInt size, Tensor(a2!)? y=None, Scalar? factor=None, bool deep=False, int k=3, "
        'str mode="say \\"a\\\\b\\"") -> (Tensor, Tensor)'
    )
    parsed = torch._C.parse_schema(f"ns::{text}")
    assert [argument.default_value for argument in parsed.arguments][3:] == [None, False, 3, 'say "a\\b"']


# --- what PyTorch does with operators ---


@pytest.mark.slow
def test_opcheck_passes(world: World) -> None:
    gradient = rows(dtype=torch.float64).requires_grad_()
    for operator, args in (
        (world.square, (rows(), 2.0)),
        (world.square, (gradient,)),
        (world.square_backward, (rows(), rows(), 2.0)),
        (world.reduce_rows, (rows(),)),
        (world.reduce_rows, (rows().t(), torch.ones(4, dtype=torch.bool), "largest")),
        (world.accumulate, (torch.zeros(4, 6), rows())),
    ):
        assert set(torch.library.opcheck(operator, args).values()) == {"SUCCESS"}


def test_results_without_memory_have_the_shapes_and_dtypes_of_real_ones(world: World) -> None:
    with torch._subclasses.FakeTensorMode():
        values, counts = world.reduce_rows(torch.empty(5, 3, dtype=torch.float64))
        assert (values.shape, values.dtype, counts.shape, counts.dtype) == ((5,), torch.float64, (5,), torch.int64)
        assert world.square(torch.empty(5, 3)).shape == (5, 3)
    meta = world.reduce_rows(torch.empty(5, 3, device="meta"))
    assert [each.shape for each in meta] == [(5,), (5,)]
    assert world.family.launches == []


@pytest.mark.slow
def test_compiled_code_has_no_graph_break_and_the_same_numbers(world: World, compiled: Callable[..., Any]) -> None:
    square, reduce_rows, accumulate, total = world.square, world.reduce_rows, world.accumulate, torch.zeros(4)

    def model(x: Any, factor: float) -> Any:
        y = square(torch.sin(x) * 2, factor)
        values, counts = reduce_rows(y.t().contiguous().t(), None, "largest")
        accumulate(total, values)
        return torch.relu(values - 1) + counts + total

    found = []
    for function in (model, compiled(model)):
        total.zero_()
        found.append([function(rows(), 1.5), function(rows(), 2.5)])
    torch.testing.assert_close(found[0], found[1])


def test_dynamo_leaves_the_implementation_alone_where_it_gave_up_the_caller(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    traced = []
    monkeypatch.setattr(world.backend, "device", lambda: traced.append(torch.compiler.is_dynamo_compiling()) or -1)
    square = world.square

    def model(x: Any) -> Any:
        for _ in range(2):  # a break of the graph in a loop ends the compilation of the frame
            x = square(x) + 1
            torch._dynamo.graph_break()
        return x

    x = rows()
    torch.testing.assert_close(torch.compile(model, backend="eager")(x), (x**2 + 1) ** 2 + 1)
    assert traced == [False] * 2


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_a_package_that_was_compiled_ahead_calls_the_operator(world: World, tmp_path: Path) -> None:
    if torch.cuda.is_available() and torch.__version__ < "2.12":
        pytest.skip("PyTorch 2.11 crashes while it loads such a package")
    square = world.square

    class Model(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return square(torch.sin(x), 2.0) + 1

    program = torch.export.export(Model(), (rows(),))
    path = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "model.pt2"))
    world.family.launches.clear()
    torch.testing.assert_close(torch._inductor.aoti_load_package(path)(rows()), Model()(rows()))
    assert len(world.family.launches) == 2


@pytest.mark.slow
def test_exported_programs_call_the_operator_with_other_sizes_too(world: World) -> None:
    square, reduce_rows = world.square, world.reduce_rows

    class Model(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return reduce_rows(square(x, 2.0) + 1, None, "sum")[0]

    size = torch.export.Dim("m", min=2)
    program = torch.export.export(Model(), (rows(),), dynamic_shapes=({0: size},))
    called = [node.target for node in program.graph.nodes if node.op == "call_function"]
    assert square in called
    assert reduce_rows in called
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    for each in (program, torch.export.load(file)):
        torch.testing.assert_close(each.module()(rows(9)), (2 * rows(9) ** 2 + 1).sum(1))


@pytest.mark.slow
def test_gradients_agree_with_differences(world: World) -> None:
    x = rows(2, 3, torch.float64).requires_grad_()
    square = world.square
    assert torch.autograd.gradcheck(lambda x: square(x, 1.5), (x,))
    assert torch.autograd.gradcheck(lambda x: square(x.t() * 2, 1.5).sum(0), (x,))


def test_without_a_gradient_nothing_is_saved(world: World) -> None:
    x = rows().requires_grad_()
    with torch.no_grad():
        assert world.square(x).grad_fn is None
    assert world.square(x).grad_fn is not None
