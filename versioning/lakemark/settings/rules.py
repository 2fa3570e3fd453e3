"""A site's rules, from the configuration's words to the model's values."""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction

from lakemark.errors import Misconfigured
from lakemark.model.tiers.residence import Admit, Residence
from lakemark.model.tiers.retention import Best, RetentionPolicy
from lakemark.ports import Approval, Drills, Objectives, Policies, ReadBack, Strength, WaterMarks
from lakemark.settings.policies import AdmitSettings, BestSettings, PolicySettings, ResidenceSettings
from lakemark.settings.schema import Settings
from lakemark.settings.tiers import HotTree


def hot_tier(settings: Settings) -> tuple[str, HotTree]:
    """The node's hot tier: the first of class hot."""
    for name, tier in settings.tiers.items():
        if isinstance(tier, HotTree):
            return name, tier
    raise Misconfigured("no tier is of class hot", advice="Add `hot: {class: hot, kind: tree, path: hot}` to `tiers`.")


def policies(settings: Settings) -> Policies:
    """The site's rules as the model takes them."""
    _, hot = hot_tier(settings)
    retention = settings.retention
    rules = {"default": policy(retention.default), "abandoned": policy(retention.abandoned)}
    rules |= {pattern: policy(one) for pattern, one in retention.runs.items()}
    # A tier admits the best by the metric that retention keeps by: there is one, as there is one `default`.
    best = (_best(retention.default.best),) if retention.default.best else ()
    return Policies(
        copies=settings.copies,
        residence={name: residence(one, best) for name, one in settings.residence.items()},
        retention=rules,
        retention_zone=retention.zone,
        min_keep=retention.min_keep,
        max_delete=Fraction(retention.max_delete),
        grace=retention.grace,
        require_pin=Strength(settings.data.require_pin) if settings.data else Strength.NONE,
        approval=Approval(
            required=settings.approval.required,
            alone_after=settings.approval.alone_after,
            expires_after=settings.approval.expires_after,
        ),
        ephemeral_hot=hot.ephemeral,
        objectives=Objectives(
            rpo=settings.objectives.rpo, rto=settings.objectives.rto, idle_after=settings.objectives.idle_after
        ),
        when_full=hot.when_full,
        apply=retention.apply,
        read_back=ReadBack(every=settings.verify.every, budget=Fraction(settings.verify.budget)),
        drills=Drills(
            every=settings.drill.every,
            command=settings.drill.command,
            timeout=settings.drill.timeout,
            scratch_max_bytes=settings.drill.scratch_max,
        ),
        water={
            name: WaterMarks(high=tier.high_water, low=tier.low_water)
            for name, tier in settings.tiers.items()
            # `low_water` alone says nothing, and is refused where it is read.
            if tier.high_water is not None
        },
    )


def policy(given: PolicySettings) -> RetentionPolicy:
    """A retention policy as the model takes it."""
    return RetentionPolicy(
        keep_last=given.keep_last or 0,
        hourly=given.hourly,
        daily=given.daily,
        weekly=given.weekly,
        monthly=given.monthly,
        yearly=given.yearly,
        every_steps=given.every_steps,
        best=(_best(given.best),) if given.best else (),
        keep_for=given.keep_for,
    )


def residence(given: ResidenceSettings, best: tuple[Best, ...]) -> Residence:
    """A tier's residence as the model takes it; `best` is retention's."""
    return Residence(
        keep_last=given.keep_last,
        # `0s` reads as an empty span.
        settle=given.settle or timedelta(0),
        keep_for=given.keep_for,
        admit=_admit(given.admit, best),
    )


def _best(given: BestSettings) -> Best:
    return Best(metric=given.metric, mode=given.mode, keep=given.keep)


def _admit(given: str | AdmitSettings, best: tuple[Best, ...]) -> Admit:
    if isinstance(given, AdmitSettings):
        return Admit(every=given.every, newest=given.newest, best=best if given.best else ())
    return Admit(everything=given == "all", retained=given == "retained")
