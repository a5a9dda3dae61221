"""Images for the architectures where code differs, and only for those; what they gain, without a GPU."""

from dataclasses import replace
from pathlib import Path

import pytest

from jitlto.base.versions import Architecture
from jitlto.build.cache.cache import Cache
from jitlto.build.pipeline import BuildReport, build
from jitlto.build.shards import Shard
from jitlto.cuda import nvdisasm, toolkit
from jitlto.database import FragmentDatabase
from jitlto.families.declaration import load_family
from jitlto.plan.images import native_target
from jitlto.plan.plan import Plan
from jitlto.record.fragment import ImageKind
from jitlto.runtime.family import KernelFamily
from tests.support.families import CONVERT, write_family
from tests.support.line_information import count_instructions

TO_BF16 = {"from_type": "float", "to_type": "__nv_bfloat16"}
TO_FP8 = {"from_type": "__half", "to_type": "__nv_fp8_e4m3"}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("convert")
    write_family(path, CONVERT)
    return path


@pytest.fixture(scope="module")
def auto(directory: Path, cache: Cache) -> KernelFamily:
    return opened(made(directory, cache, "auto"))


@pytest.fixture(scope="module")
def base(directory: Path, cache: Cache) -> KernelFamily:
    return opened(made(directory, cache, "base", is_auto=False))


def made(
    directory: Path, cache: Cache | None, output: str, *, is_auto: bool = True, shard: str | None = None
) -> BuildReport:
    family = replace(load_family(directory / "family.toml"), is_auto=is_auto)
    part = Shard.parse(shard) if shard else None
    return build([family], directory / f"{output}.fragdb", jobs=1, cache=cache, shard=part)


def opened(report: BuildReport) -> KernelFamily:
    return KernelFamily("convert", FragmentDatabase(report.path))


def images(family: KernelFamily) -> dict[str, list[str]]:
    return {
        fragment.key.group + "".join(f" {value}" for _, value in fragment.key.parameters): [
            str(image.architecture) for image in fragment.images_of(ImageKind.LTOIR)
        ]
        for fragment in family.database.fragments("convert")
    }


def linked_from(plan: Plan) -> list[str]:
    return [str(image.architecture) for image in plan.images]


@pytest.mark.slow
def test_fragments_get_images_for_the_architectures_where_their_code_differs(auto: KernelFamily) -> None:
    assert images(auto) == {
        "kern 8 __half": ["75"],
        "kern 8 float": ["75"],
        "store __half __half": ["75"],
        "store __half __nv_fp8_e4m3": ["75", "89"],
        "store float __nv_bfloat16": ["75", "80"],
        "store float float": ["75"],
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "instruction", "at_most"), [(TO_BF16, b"F2FP.BF16", 0.7), (TO_FP8, b"F2FP", 0.7)], ids=["bf16", "fp8"]
)
def test_a_conversion_takes_one_instruction_where_there_is_one(
    auto: KernelFamily, base: KernelFamily, values: dict[str, str], instruction: bytes, at_most: float
) -> None:
    before, after = (family.plan(arch="sm_90", **values).link().cubin for family in (base, auto))
    assert count_instructions(after) < at_most * count_instructions(before)
    if toolkit.find_binary("nvdisasm") is None:
        pytest.skip("counted, but not named: nvdisasm is not installed")
    assert instruction in nvdisasm.disassemble(after)
    assert instruction not in nvdisasm.disassemble(before)


@pytest.mark.slow
def test_a_plan_mixes_the_best_image_of_each_fragment(auto: KernelFamily) -> None:
    taken = {arch: linked_from(auto.plan(arch=arch, **TO_FP8)) for arch in ("sm_75", "sm_86", "sm_89", "sm_90")}
    assert taken == {"sm_75": ["75"] * 2, "sm_86": ["75"] * 2, "sm_89": ["75", "89"], "sm_90": ["75", "89"]}
    assert linked_from(auto.plan(arch="sm_80", **TO_BF16)) == ["75", "80"]
    for arch in ("sm_75", "sm_80", "sm_89", "sm_90", "sm_100"):
        assert auto.plan(arch=arch, **TO_FP8).link().cubin


SPECIFIC = """
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define SCALE 3
#elif defined(__CUDA_ARCH_FAMILY_SPECIFIC__)
#define SCALE 5
#else
#define SCALE 1
#endif
"""


@pytest.mark.slow
def test_a_plan_takes_the_images_of_a_group_for_one_architecture_or_family_there_and_nowhere_else(
    tmp_path: Path, cache: Cache
) -> None:
    declared = CONVERT["family.toml"].replace("[device.store]", '[device.store]\narchs = ["90a", "100f"]')
    template = SPECIFIC + CONVERT["store.cu.jinja"].replace("(value)", "(static_cast<float>(value) * SCALE)")
    write_family(tmp_path, CONVERT | {"family.toml": declared, "store.cu.jinja": template})
    family = opened(made(tmp_path, cache, "specific"))
    assert images(family)["store float float"] == ["75", "90a", "100f"]
    assert images(family)["kern 8 float"] == ["75"]

    def taken(arch: str) -> str:
        plan = family.plan(arch=arch, from_type="float", to_type="float")
        assert plan.link().cubin
        return linked_from(plan)[-1]

    everywhere = ("sm_75", "sm_90", "sm_100", "sm_103", "sm_120", "sm_120a", "sm_120f")
    assert {taken(arch) for arch in everywhere} == {"75"}
    assert taken("sm_90a") == "90a"
    assert {taken(arch) for arch in ("sm_100a", "sm_100f", "sm_103a", "sm_103f")} == {"100f"}
    fragments = family.plan(arch="sm_90", from_type="float", to_type="float").fragments
    devices = {number: str(native_target(Architecture(number), fragments)) for number in (75, 90, 100, 103, 120)}
    assert devices == {75: "75", 90: "90a", 100: "100a", 103: "103a", 120: "120"}
