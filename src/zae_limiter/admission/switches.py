"""The switches of a bucket: the mode that its levels of configuration give it at a stamp."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from zae_limiter.admission.request import Charge, Rejection
from zae_limiter.models.config import ConfigSnapshot, ConfigSource
from zae_limiter.models.switches import Switch, SwitchMode

if TYPE_CHECKING:
    from zae_limiter.models.status import LimitStatus


class Switches(NamedTuple):
    """The switches that are set for one bucket, with their levels, the strongest first."""

    levels: tuple[tuple[ConfigSource, Switch], ...]

    def at(self, now_ms: int) -> tuple[ConfigSource, Switch] | None:
        """Return the switch that counts at a moment, and its level; None if all have ended.

        ``deny`` wins over every other mode. Otherwise the strongest level wins.
        """
        running = [each for each in self.levels if not each[1].is_over(now_ms)]
        for each in running:
            if each[1].mode is SwitchMode.DENY:
                return each
        return running[0] if running else None


def switches_of(snapshot: ConfigSnapshot) -> Switches | None:
    """Return the switches of an entity on a resource; None if none is set."""
    found = (
        (ConfigSource.ENTITY, snapshot.entity_resource),
        (ConfigSource.ENTITY_DEFAULT, snapshot.entity_default),
        (ConfigSource.RESOURCE, snapshot.resource),
    )
    levels = [
        (source, config.switch)
        for source, config in found
        if config is not None and config.switch is not None
    ]
    return Switches(tuple(levels)) if levels else None


def switched(charge: Charge, switches: Switches | None, now_ms: int) -> Charge:
    """Return a charge with the switch that counts at its stamp; under bypass, without slots."""
    current = None if switches is None else switches.at(now_ms)
    if current is None or current[1].mode is SwitchMode.ENFORCE:
        return charge
    switch, slot_keys = current[1], charge.in_force.slot_keys
    amounts = charge.amounts_milli
    if switch.mode is SwitchMode.BYPASS and slot_keys:
        amounts = {key: 0 if key in slot_keys else amount for key, amount in amounts.items()}
    return replace(charge, switch=switch, amounts_milli=amounts)


def denial(charges: Sequence[Charge], now_ms: int) -> Rejection | None:
    """Return the rejection of a request if one of its buckets is denied; None if none is denied.

    The rejection lists the limits of the denied buckets. These buckets are not read, so the
    rejection shows 0 as available.
    """
    for charge in charges:
        if charge.switch is not None and charge.switch.mode is SwitchMode.DENY:
            return _denial(charges, now_ms)
    return None


def _denial(charges: Sequence[Charge], now_ms: int) -> Rejection:
    from zae_limiter.models.status import LimitStatus  # imported here, since denials are rare

    listed = []
    for charge in charges:
        if charge.switch is None or charge.switch.mode is not SwitchMode.DENY:
            continue
        for limit, amount in zip(
            charge.in_force.limits, charge.amounts_milli.values(), strict=True
        ):
            asked = LimitStatus(
                entity_id=charge.entity_id,
                resource=charge.resource,
                limit_name=limit.name,
                limit=limit,
                available=limit.shown(0),
                requested=limit.shown(amount),
                exceeded=True,
                retry_after_seconds=0.0,
            )
            listed.append(under_switch(asked, charge.switch, now_ms))
    return Rejection(tuple(listed))


def after_switch(status: LimitStatus, switch: Switch) -> LimitStatus:
    """Return the status of a limit after a charge that was admitted under a switch.

    ``retry_after_seconds`` of an overdrawn limit stays: it is the time until the debt is repaid.
    """
    is_overdrawn = switch.mode is SwitchMode.SHADOW and status.available < 0
    return replace(
        status,
        mode=switch.mode.value,
        mode_until=switch.until,
        exceeded=False,
        overdrawn=status.overdrawn or is_overdrawn,
    )


def under_switch(status: LimitStatus, switch: Switch, now_ms: int) -> LimitStatus:
    """Return the status of a limit under a switch.

    Under ``deny`` the limit is exceeded. In other modes it is exceeded only while a pause stops the
    bucket.
    """
    status = replace(status, mode=switch.mode.value, mode_until=switch.until)
    if switch.mode is SwitchMode.DENY:
        wait_s = math.inf if switch.until_ms is None else (switch.until_ms - now_ms) / 1000
        longest_s = max(wait_s, status.retry_after_seconds)
        return replace(status, exceeded=True, retry_after_seconds=longest_s)
    is_overdrawn = switch.mode is SwitchMode.SHADOW and status.available < 0
    status = replace(status, overdrawn=status.overdrawn or is_overdrawn)
    if status.paused_seconds:
        return replace(status, retry_after_seconds=status.paused_seconds)
    return replace(status, exceeded=False, retry_after_seconds=0.0)
