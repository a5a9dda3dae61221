"""Entries of the kernel cache: an entry decodes to what was encoded, for its own digest and for no other."""

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.base.cache_dir import CacheDir
from jitlto.plan.cache_entry import Chosen, LinkedKernel, LinkKey
from jitlto.runtime.family import KernelFamily

texts = st.text(max_size=30)


def link_key(entry: str = "kern", arch: str = "sm_90", kernel: str = "f/k[]", **configuration: str) -> LinkKey:
    content = json.dumps({"entry": entry, "arch": arch}, sort_keys=True).encode()
    return LinkKey(content, kernel, tuple(configuration.items()), hashlib.sha256(content).hexdigest())


def test_an_entry_is_that_of_no_other_digest() -> None:
    mine, other = link_key("one"), link_key("other")
    payload = mine.encode(LinkedKernel(b"cubin", "one", "sm_90", "", 1.0))
    assert LinkedKernel.decode(mine.digest, payload, 0, "disk") is not None
    assert LinkedKernel.decode(other.digest, payload, 0, "disk") is None


@pytest.mark.slow
@given(st.binary(max_size=100) | st.lists(st.sampled_from([b"{}", b"[]", b"1", b"null", b"\n", b'{"log":1}', b"\xff"])))
def test_what_is_no_entry_is_none(data: bytes | list[bytes]) -> None:
    whole = data if isinstance(data, bytes) else b"".join(data)
    assert LinkedKernel.decode(hashlib.sha256(whole.partition(b"\n")[0]).hexdigest(), whole, 0, "disk") is None


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"arch": "sm_90"}'])
def test_an_entry_that_somebody_else_made_up_is_none(content: bytes) -> None:
    line = b'{"kernel": "f/k[]", "configuration": [], "log": ""}'
    whole = b"\n".join([content, line, b"cubin"])
    assert LinkedKernel.decode(hashlib.sha256(content).hexdigest(), whole, 0, "disk") is None


@pytest.mark.parametrize("chosen", [["f/k[]", "../../x", []], ["f/k[]", None, []], ["f/k[]", "ab", [["n"]]], "abc"])
def test_an_answer_that_somebody_else_made_up_is_none(chosen: object) -> None:
    assert Chosen.decode(json.dumps(chosen).encode()) is None


def test_a_link_key_names_the_inputs_of_the_link(mini: KernelFamily, tmp_path: Path) -> None:
    plan = mini.plan(arch="sm_90a", data_type="float", op_name="twice", link_options={"max_registers": 32})
    inputs = plan.link_key.inputs
    assert inputs["arch"] == "sm_90a"
    assert inputs["images"] == [image.sha256 for image in plan.images]
    assert inputs["flags"] == ["-lto", "-maxrregcount=32"]
    assert plan.digest == plan.link_key.digest == hashlib.sha256(plan.link_key.content).hexdigest()
    # And the entry on the disk carries it all: it can be read without the database.
    store, linked = CacheDir(tmp_path / "store", 1 << 20), plan.link(use_cache=False)
    store.put("kernels", plan.digest, plan.link_key.encode(linked))
    payload = store.get("kernels", plan.digest)
    assert payload is not None
    read = LinkedKernel.decode(plan.digest, payload, linked.seconds, "disk")
    assert read and read.as_dict() == linked.as_dict() | {"layer": "disk"}
    assert LinkKey.from_entry(payload) == plan.link_key
