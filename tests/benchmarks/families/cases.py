"""Which kernels are timed: of each family a few that differ in what they wait for."""


def _scan(data_type: str, veclen: int, metric: str, post: str, norm: bool, filter_name: str) -> dict[str, str]:
    return {
        "data_type": data_type,
        "veclen": str(veclen),
        "capacity": "16",
        "order": "ascending",
        "compute_norm": str(norm).lower(),
        "metric_name": metric,
        "post_lambda_name": post,
        "filter_name": filter_name,
    }


def _transform(kind: str, direction: str, data_type: str, size: int, load: str, store: str) -> dict[str, str]:
    return {
        "kind": kind, "direction": direction, "data_type": data_type, "size": str(size), "load": load, "store": store,
    }  # fmt: skip


def _transport(geometry: str, sections: str, tally: str, absorption: str, boundary: str, source: str) -> dict[str, str]:
    return {
        "absorption_name": absorption,
        "boundary_name": boundary,
        "cross_section_name": sections,
        "generator_name": "philox_10",
        "geometry_name": geometry,
        "scattering_name": "linear" if boundary == "mixed" else "isotropic",
        "source_name": source,
        "tally_name": tally,
    }


CASES = {
    "ivf_flat": (
        _scan("float", 4, "euclidean", "identity", False, "none"),
        _scan("float", 1, "euclidean", "sqrt", False, "none"),
        _scan("__half", 8, "inner_product", "identity", False, "bitset"),
        _scan("uint8_t", 16, "euclidean", "identity", False, "none"),
        _scan("int8_t", 16, "inner_product", "compose", True, "none"),
    ),
    "fft": (
        _transform("c2c", "forward", "float", 256, "scale", "scale"),
        _transform("c2c", "forward", "float", 1024, "window", "scale"),
        _transform("c2c", "inverse", "float", 8192, "window", "window"),
        _transform("c2c", "forward", "double", 1024, "window", "scale"),
        _transform("r2c", "forward", "float", 4096, "window", "scale"),
        _transform("c2r", "inverse", "__half", 1024, "scale", "scale"),
    ),
    "transport": (
        _transport("slab", "one_group", "track_length", "analog", "vacuum", "beam"),
        _transport("slab", "multigroup", "track_length", "implicit", "vacuum", "beam"),
        _transport("cartesian", "one_group", "track_length", "analog", "vacuum", "point"),
        _transport("cartesian", "multigroup", "collision", "implicit", "mixed", "volume"),
    ),
}
