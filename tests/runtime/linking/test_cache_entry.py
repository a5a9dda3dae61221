"""Entries of the cubin cache: what is read is what was packed, for the digest it was packed for and for no other."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jitlto.runtime.family import KernelFamily
from jitlto.runtime.linking.kernel_cache import LinkedKernel, pack, unpack
from jitlto.runtime.linking.link_key import Recipe
from jitlto.storage.cache_dir import CacheDir

texts = st.text(max_size=30)


def recipe(entry: str = "kern", arch: str = "sm_90", kernel: str = "f/k[]", **configuration: str) -> Recipe:
    content = json.dumps({"entry": entry, "arch": arch}, sort_keys=True).encode()
    return Recipe(content, kernel, tuple(configuration.items()))


recipes = st.builds(
    recipe, texts, st.sampled_from(["sm_75", "sm_90a", "sm_100f"]), texts, configuration=texts, value=texts
)


@given(recipes, st.binary(max_size=300), st.text(max_size=300))
@settings(max_examples=200)
def test_what_is_unpacked_is_what_was_packed(recipe: Recipe, cubin: bytes, log: str) -> None:
    inputs = recipe.inputs
    linked = LinkedKernel(cubin, str(inputs["entry"]), str(inputs["arch"]), log, 1.5)
    payload = pack(recipe, linked)
    found = unpack(recipe.digest, payload, 0.25, "disk")
    assert found is not None
    assert found == linked
    assert (found.seconds, found.layer) == (0.25, "disk")
    assert Recipe.of_entry(payload) == recipe


@given(recipes, st.binary(max_size=20))
def test_packing_is_deterministic(recipe: Recipe, cubin: bytes) -> None:
    inputs = recipe.inputs
    one, other = (
        LinkedKernel(cubin, str(inputs["entry"]), str(inputs["arch"]), "log", seconds) for seconds in (1.0, 2.0)
    )
    assert pack(recipe, one) == pack(recipe, other)


def test_an_entry_is_that_of_no_other_digest() -> None:
    mine, other = recipe("one"), recipe("other")
    payload = pack(mine, LinkedKernel(b"cubin", "one", "sm_90", "", 1.0))
    assert unpack(mine.digest, payload, 0, "disk") is not None
    assert unpack(other.digest, payload, 0, "disk") is None


@given(st.binary(max_size=100) | st.lists(st.sampled_from([b"{}", b"[]", b"1", b"null", b"\n", b'{"log":1}', b"\xff"])))
def test_what_is_no_entry_is_none(data: bytes | list[bytes]) -> None:
    whole = data if isinstance(data, bytes) else b"".join(data)
    assert unpack(hashlib.sha256(whole.partition(b"\n")[0]).hexdigest(), whole, 0, "disk") is None


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"arch": "sm_90"}', b'{"arch": "sm_1x", "entry": "k"}'])
def test_an_entry_that_somebody_else_made_up_is_none(content: bytes) -> None:
    line = b'{"kernel": "f/k[]", "configuration": [], "log": ""}'
    whole = b"\n".join([content, line, b"cubin"])
    assert unpack(hashlib.sha256(content).hexdigest(), whole, 0, "disk") is None


def test_a_recipe_tells_the_inputs_of_the_link(mini: KernelFamily, tmp_path: Path) -> None:
    plan = mini.plan(arch="sm_90a", data_type="float", op_name="twice", link_options={"max_registers": 32})
    inputs = plan.recipe.inputs
    assert inputs["arch"] == "sm_90a"
    assert inputs["images"] == [image.sha256 for image in plan.images]
    assert inputs["flags"] == ["-lto", "-maxrregcount=32"]
    assert plan.digest == plan.recipe.digest == hashlib.sha256(plan.recipe.content).hexdigest()
    # And the entry on the disk carries it all: it can be read without the database.
    store, linked = CacheDir(tmp_path / "store", 1 << 20), plan.link_anew()
    store.put("kernels", plan.digest, pack(plan.recipe, linked))
    payload = store.get("kernels", plan.digest)
    assert payload is not None
    assert unpack(plan.digest, payload, 0, "disk") == linked
    assert Recipe.of_entry(payload) == plan.recipe
