"""A quantity that never falls, learned from noisy measurements at whole numbers: seconds of a step by its rows."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from statistics import median


class Curve:
    """Medians of the last ``recent`` values at each place, made monotone, straight in between.

    Above the highest place it goes on with the mean slope of what is known, below the lowest it is flat. What is slow
    by accident at one place is leveled with its neighbors (isotonic regression, pool adjacent violators).
    Cost: O(places) for each value.
    """

    def __init__(self, recent: int = 9) -> None:
        self._recent = recent
        self._seen: dict[int, deque[float]] = {}
        self._xs: list[int] = []
        self._ys: list[float] = []

    def note(self, x: int, y: float) -> None:
        """Take in a measurement. Places above 32 are kept to an eighth of their size."""
        self._seen.setdefault(_place(x), deque(maxlen=self._recent)).append(y)
        self._xs = sorted(self._seen)
        self._ys = _monotone([(median(self._seen[x]), len(self._seen[x])) for x in self._xs])

    @property
    def lowest(self) -> float:
        """The lowest place measured; infinite where there is none."""
        return self._xs[0] if self._xs else float("inf")

    @property
    def highest(self) -> int:
        """The highest place measured; 0 where there is none."""
        return self._xs[-1] if self._xs else 0

    def __call__(self, x: float, unknown: float = 0.0) -> float:
        """Its value; ``unknown`` before the first measurement.

        >>> curve = Curve()
        >>> curve.note(1, 10.0); curve.note(5, 14.0); curve.note(3, 9.0)
        >>> curve(1), curve(3), curve(4), curve(9)
        (9.5, 9.5, 11.75, 18.5)
        """
        xs, ys = self._xs, self._ys
        if not xs:
            return unknown
        if x <= xs[0]:
            return ys[0]
        if x > xs[-1]:
            slope = (ys[-1] - ys[0]) / (xs[-1] - xs[0]) if len(xs) > 1 else 0.0
            return ys[-1] + slope * (x - xs[-1])
        right = bisect_left(xs, x)
        share = (x - xs[right - 1]) / (xs[right] - xs[right - 1])
        return ys[right - 1] * (1 - share) + ys[right] * share


def _place(x: int) -> int:
    if x <= 32:
        return x
    grain = 1 << max(x.bit_length() - 4, 0)
    return x // grain * grain


def _monotone(points: list[tuple[float, int]]) -> list[float]:
    """The nearest values that never fall, by weighted squares."""
    pools: list[tuple[float, int, int]] = []  # mean, weight, points
    for value, weight in points:
        pools.append((value, weight, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (a, wa, na), (b, wb, nb) = pools[-2:]
            pools[-2:] = [((a * wa + b * wb) / (wa + wb), wa + wb, na + nb)]
    return [mean for mean, _, count in pools for _ in range(count)]
