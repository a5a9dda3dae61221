"""Words of messages."""

from jitlto.base.text import abbreviate, describe_differences, suggest


def test_of_two_compilers_only_what_differs_is_named() -> None:
    assert describe_differences(f"nvcc\nrelease 13.0\n{40 * 'a'}", f"nvcc\nrelease 13.1\n{40 * 'a'}") == (
        "release 13.0",
        "release 13.1",
    )
    assert describe_differences("nvrtc 13.5 " + 40 * "a", "nvrtc 13.5 " + 40 * "b") == (
        "nvrtc 13.5 " + 12 * "a",
        "nvrtc 13.5 " + 12 * "b",
    )
    assert describe_differences("nvcc", "nvcc\ngcc 12") == ("nvcc", "gcc 12")


def test_the_nearest_name_is_suggested() -> None:
    assert suggest("optn", ["options", "option", "key"]) == "did you mean 'option'?"
    assert suggest("dtype", ["idx_type", "data_type"]) == "did you mean 'data_type'?"
    assert suggest("ption", ["option", "notion"]) == "did you mean 'option'?"
    assert suggest("zzz", ["option"]) == ""
    assert suggest("zzz", ["option"], "the keys are option") == "the keys are option"


def test_a_value_in_a_message_is_short_and_never_fails() -> None:
    class Failing:
        def __repr__(self) -> str:
            raise RuntimeError

    assert abbreviate("a") == "'a'"
    assert len(abbreviate("x" * 10**6)) < 250
    assert abbreviate(10**5000) == "<int>"
    assert abbreviate(Failing()) == "<Failing>"
