"""Define the timing protocols. A protocol's name is stored with every measurement."""

from dataclasses import dataclass

from gemmtune.engine.records.errors import ContractError
from gemmtune.engine.seams.objective import BITS


@dataclass(frozen=True, slots=True)
class Protocol:
    """Rules of timing: the state of L2 at launch, and whether energy is measured."""

    name: str
    """Name as `MODE-CACHE`: the way launches are issued, and the place of operands at launch."""
    cold: bool
    """Whether operands come from device memory, like weights last used a layer ago; otherwise from L2 if they fit."""
    energy: bool
    """Whether the energy per launch is measured too, in a loop of half a second."""
    bits: bool = False
    """Whether the bits of a row are compared across positions and neighbours, and kept."""

    @property
    def holds_finals(self) -> bool:
        """Whether finals are held; they interleave launches, which a loop for energy cannot."""
        return not self.energy


PROTOCOLS = {
    p.name: p
    for p in (
        Protocol("graph-cold-l2", cold=True, energy=False),
        Protocol("graph-warm-l2", cold=False, energy=False),
        Protocol("graph-cold-l2+energy", cold=True, energy=True),
        Protocol(f"graph-cold-l2{BITS}", cold=True, energy=False, bits=True),
        Protocol(f"graph-warm-l2{BITS}", cold=False, energy=False, bits=True),
    )
}
"""Protocols that can measure, by name; landscapes may be recorded with others, which only replay knows."""


def protocol(name: str) -> Protocol:
    """Return the protocol of this name; raises ContractError, which lists the known ones, if there is none."""
    if name not in PROTOCOLS:
        raise ContractError(f"no timing protocol {name!r}; known: {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]
