"""Proposals of variants to time where there are too many for all: Optuna's tree-structured Parzen estimator."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from jitlto.base.errors import ToolchainError
from jitlto.record.tuning import Variant

_log = logging.getLogger(__name__)


def propose(
    variants: Sequence[Variant],
    cost: Callable[[Variant], float | None],
    count: int,
    seed: int,
    is_late: Callable[[], bool],
) -> None:
    """Ask for variants that may be good, and have each timed once; the same costs lead to the same proposals.

    Args:
        variants: What may be proposed.
        cost: Times a variant; None if it cannot be used.
        count: How many to propose.
        seed: Of the proposals.
        is_late: Whether to stop.

    Raises:
        ToolchainError: If Optuna is not installed.
    """
    try:
        import optuna
    except ImportError as error:
        raise ToolchainError(
            f"Optuna is not installed, which searches among {len(variants)} variants",
            code="toolchain-missing",
            hint="pip install 'jitlto[tune]', or declare fewer choices",
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    features = [_features(variant) for variant in variants]
    names = sorted({name for each in features for name in each})
    choices = {name: sorted({each.get(name, "") for each in features}) for name in names}
    by_choice = {tuple(each.get(name, "") for name in names): v for each, v in zip(features, variants, strict=True)}
    sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=max(10, count // 4), multivariate=False)
    study = optuna.create_study(sampler=sampler)
    costs: dict[Variant, float | None] = {}
    for _ in range(4 * count):
        if is_late() or len(costs) >= count:
            return
        trial = study.ask()
        chosen = tuple(trial.suggest_categorical(name, choices[name]) for name in names)
        variant = by_choice.get(chosen)
        if variant is not None and variant not in costs:
            costs[variant] = cost(variant)
        value = costs.get(variant) if variant is not None else None
        if value is None:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            study.tell(trial, value)


def _features(variant: Variant) -> Mapping[str, str]:
    link = {f"link {name}": repr(value) for name, value in variant.link}
    return {**dict(variant.parameters), **{f"launch {n}": v for n, v in variant.launch}, **link}
