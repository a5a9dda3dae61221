"""The requests that the kernels of a pack answer, found by planning when the pack is made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from jitlto.base.errors import JitltoError
from jitlto.base.versions import Architecture
from jitlto.cuda.compatibility import choose_target
from jitlto.link.packed_requests import Answer, Scope
from jitlto.plan.plan import Plan, Request
from jitlto.runtime.family import KernelFamily


def find_answers(packed: Iterable[tuple[KernelFamily, Request, Plan]]) -> list[Answer]:
    """Return the requests that launchers could make of packed kernels: that recorded, and those with fewer parameters.

    Args:
        packed: Of each kernel its family, a request for it, and its plan.
    """
    answers: dict[object, Answer] = {}
    likely: dict[object, frozenset[str]] = {}  # the parameters that the last kernel of an entrypoint needed
    for family, request, plan in packed:
        if request.pinned or request.supplied or not _is_for_device(plan):
            continue
        groups = {request.entry, plan.entry.key.group}
        for group in groups if len(family.entrypoints) > 1 else {plan.entry.key.group}:
            for named in _named(family, request, group, plan, likely):
                answer = _answer(family, request, group, plan, named)
                answers.setdefault(answer.scope.key("chosen", named), answer)
    return list(answers.values())


def _is_for_device(plan: Plan) -> bool:
    """Return whether a launcher on a device of the target's architecture would use the same code, without a warning."""
    target = plan.link_target
    own = choose_target(
        plan.fragments, plan.mode, Architecture(target.architecture.number), target.nvjitlink, requested=False
    )
    return own == target and target.link_mode == plan.mode and target.jit_base is None


def _answer(family: KernelFamily, request: Request, group: str | None, plan: Plan, named: Mapping[str, str]) -> Answer:
    capability = divmod(plan.target.number, 10)
    options, linker = dict(request.link_options), str(plan.link_target.nvjitlink)
    scope = Scope(family.contents.digest, family.name, group, request.link_mode, options, capability, linker)
    return Answer(scope, named, plan.configuration, plan.chosen)


def _named(
    family: KernelFamily, request: Request, group: str | None, plan: Plan, likely: dict[object, frozenset[str]]
) -> Iterator[dict[str, str]]:
    """Yield parameters that are enough to get a plan: those of the request, and as few as possible."""
    own = plan.configuration
    fewest = _fewest(family, request, group, plan, likely)
    if fewest is not None:
        yield fewest
        if fewest.keys() <= request.configuration.keys() <= own.keys():
            return  # it answers this request too
    if _leads_to(plan, family, request, group, request.configuration):
        yield dict(request.configuration)


def _fewest(
    family: KernelFamily, request: Request, group: str | None, plan: Plan, likely: dict[object, frozenset[str]]
) -> dict[str, str] | None:
    own, kind = plan.configuration, (family.name, group)
    if not _leads_to(plan, family, request, group, own):
        return None  # fragments of the kernel differ in a parameter, which has to be given or not
    hint = likely.get(kind)
    if hint is not None and hint <= own.keys():
        few = {name: own[name] for name in sorted(hint)}
        if _leads_to(plan, family, request, group, few):
            return few
    few = own
    for name in sorted(own):
        fewer = {other: value for other, value in few.items() if other != name}
        if _leads_to(plan, family, request, group, fewer):
            few = fewer
    likely[kind] = frozenset(few)
    return few


def _leads_to(
    plan: Plan, family: KernelFamily, request: Request, group: str | None, configuration: Mapping[str, str]
) -> bool:
    try:
        other = family.planner(group, **configuration).plan(
            arch=plan.target, link_mode=request.link_mode, link_options=request.link_options
        )
    except JitltoError:
        return False
    return other.digest == plan.digest
