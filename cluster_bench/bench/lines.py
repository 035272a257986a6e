"""The figures of the bench as they are printed: each with its target and a verdict."""

from dataclasses import dataclass

GATE = 0.03  # how far the baseline may be from itself before no time counts


@dataclass(frozen=True)
class Line:
    """One figure; `wanted` as in "<= 0.03", or empty: printed beside others and judged nowhere."""

    target: str
    figure: str
    value: float
    wanted: str = ""
    unit: str = "%"  # or "x", or none
    timed: bool = False  # rests on times of this run
    note: str = ""

    def verdict(self, quiet: bool) -> str:
        """`holds`, `misses`, or `inconclusive` for a time where the baseline was not equal to itself."""
        if not self.wanted:
            return ""
        if self.timed and not quiet:
            return "inconclusive"
        sign, bound = self.wanted.split()
        holds = self.value <= float(bound) if sign == "<=" else self.value >= float(bound)
        return "holds" if holds else "misses"

    def text(self, quiet: bool) -> str:
        """The line as it is printed."""
        sign, _, bound = self.wanted.partition(" ")
        wanted = f"{sign} {self._shown(float(bound))}" if bound else ""
        value, verdict = self._shown(self.value), self.verdict(quiet)
        return f"{self.target:>5} {self.figure:<55} {value:>8} {wanted:>9} {verdict:<12} {self.note}".rstrip()

    def _shown(self, value: float) -> str:
        return f"{value:.1%}" if self.unit == "%" else f"{value:.3g}{self.unit}"
