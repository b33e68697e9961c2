"""The timing protocols by name. A protocol's name is part of every number made with it."""

from __future__ import annotations

from dataclasses import dataclass

from gemmtune.engine.records.errors import ContractError

__all__ = ["PROTOCOLS", "Protocol", "protocol"]


@dataclass(frozen=True, slots=True)
class Protocol:
    """What is timed, and in which state of the machine."""

    name: str
    """`MODE-CACHE`: how launches are issued, and where the operands are when a launch begins."""
    cold: bool
    """Whether operands come from device memory, as weights do that were last read a layer or more ago; otherwise they
    are in L2 as far as they fit."""
    energy: bool
    """Whether the energy of a launch is measured too, over a loop of half a second."""

    @property
    def settles(self) -> bool:
        """Whether the best of a problem can meet in a final: launches interleave, a loop for energy does not."""
        return not self.energy


PROTOCOLS = {
    p.name: p
    for p in (
        Protocol("graph-cold-l2", cold=True, energy=False),
        Protocol("graph-warm-l2", cold=False, energy=False),
        Protocol("graph-cold-l2+energy", cold=True, energy=True),
    )
}
"""Every protocol that measures. Landscapes may be recorded with others, which only replay knows."""


def protocol(name: str) -> Protocol:
    """The protocol of that name.

    Raises:
        ContractError: there is none; the message lists those there are.
    """
    if name not in PROTOCOLS:
        raise ContractError(f"no timing protocol {name!r}; known: {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]
