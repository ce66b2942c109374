"""What a quantity will be, and how sure that is: two small Kalman filters on logarithms.

Times and rates are positive and vary by factors, so all of it is in natural logarithms: a variance of 0.01 is about ten
per cent. An estimate that is not renewed grows less sure with time, and one that is contradicted clearly jumps instead
of creeping: a network that became ten times slower is known to be so after one call.
"""

from __future__ import annotations

import math
from typing import Final

#: A measurement this many standard deviations off is a step, not noise.
STEP_SIGMAS: Final = 3.0
#: One measurement that is off by this factor is a step; a smaller one may be chance until the next one agrees.
STEP_FACTOR: Final = 3.0
#: Measured noise is believed only within these bounds (about 2 % and 65 %).
NOISE_MIN: Final = 4e-4
NOISE_MAX: Final = 0.25
#: Weight of the newest measurement in the noise.
NOISE_GAIN: Final = 0.1
#: Sizes this close to each other, in the logarithm, share a spot of a curve; and the most spots that a curve keeps.
SPOT_WIDTH: Final = 0.1
SPOTS_MAX: Final = 64
#: A spot is never surer of its middle than this, so that it goes with what changes slowly.
SPOT_VARIANCE_MIN: Final = 1e-3
#: The first time is often longer than the others, by what it finds cold.
FIRST_VARIANCE: Final = 0.3
#: A measurement this unsure says how much it may be, not how much it is.
VAGUE: Final = 0.5
#: How little the height of a curve is known of which only bounds were seen.
BOUNDS_VARIANCE: Final = 1.0
#: How much of a variance is left, at the least, of what is known to be beyond a bound.
BEYOND_MIN: Final = 0.02
#: How much a curve may bend between sizes that were seen: the doubt about its power, away from them. Where sizes are a few
#: bytes they are numbers, and work may grow with such a one as it likes.
BEND: Final = 0.3
BEND_OF_NUMBERS: Final = 8.0
#: The power of work that grows with a number: that of a square grid, give or take four (an exponential looks so, from near).
NUMBERS_SLOPE: Final = 2.0
NUMBERS_SLOPE_VARIANCE: Final = 16.0
NUMBERS_MAX: Final = 512.0
BEND_MAX: Final = 0.5
#: The most variance that counts in what is expected, and in how far it may be off.
WIDE: Final = 1.0
SPREAD_MAX: Final = 3.0
#: The least value whose logarithm is taken: a tenth of a microsecond.
LEAST: Final = 1e-7


class Guess:
    """A positive quantity: mean and variance of its logarithm."""

    __slots__ = ("log", "noise", "variance")

    def __init__(self, log: float, variance: float, noise: float = 0.0) -> None:
        """`noise` is the part of the variance that is left when there is nothing more to learn."""
        self.log = log
        self.variance = variance
        self.noise = noise

    @property
    def mean(self) -> float:
        """The expected value of the log-normal; a wide guess counts as its middle times 1.65 at most: what takes very long
        would be given up."""
        return math.exp(self.log + min(self.variance, WIDE) / 2)

    @property
    def middle(self) -> float:
        """As likely too small as too large."""
        return math.exp(self.log)

    @property
    def spread(self) -> float:
        """Standard deviation of the quantity itself."""
        return self.mean * math.sqrt(math.expm1(min(self.variance, SPREAD_MAX)))

    def beyond(self, value: float) -> Guess:
        """What is known once it is seen to be more than this: what is left of the normal to its right."""
        deviation = math.sqrt(self.variance)
        at = (math.log(max(value, LEAST)) - self.log) / deviation
        pull = _pull(at)
        return Guess(self.log + deviation * pull, self.variance * max(1.0 - pull * (pull - at), BEYOND_MIN))


class Level:
    """One quantity that drifts and steps: a rate, a round trip, a slowdown."""

    __slots__ = ("_at", "_drift", "_log", "_noise", "_suspect", "_variance", "count")

    def __init__(self, prior: float, prior_variance: float, drift_per_second: float) -> None:
        self._log = math.log(max(prior, LEAST))
        self._variance = prior_variance
        self._drift = drift_per_second
        self._noise = 0.02
        self._suspect = 0.0
        self._at: float | None = None
        self.count = 0

    def guess(self, now: float) -> Guess:
        """What a measurement would say now, its own noise included."""
        return Guess(self._log, self._aged(now) + self._noise, self._noise)

    def observe(self, value: float, now: float, noise: float = 0.0) -> None:
        """`noise` is what the measurement itself is unsure by, as a variance of the logarithm."""
        variance = self._aged(now)
        error = math.log(max(value, LEAST)) - self._log
        total = variance + self._noise + noise
        if self.count >= 2 and error * error > STEP_SIGMAS**2 * total:
            variance = error * error
            total = variance + self._noise + noise
            if not _is_step(error, self._suspect):
                total *= 2
            self._suspect = error
        elif self.count:
            self._suspect = 0.0
            # What is left after the level's own doubt is noise.
            left = min(max(error * error - variance - noise, NOISE_MIN), NOISE_MAX)
            self._noise += NOISE_GAIN * (left - self._noise)
        gain = variance / total
        self._log += gain * error
        self._variance = (1 - gain) * variance
        self._at = now
        self.count += 1

    def age(self, now: float) -> float:
        """Seconds since the last measurement."""
        return math.inf if self._at is None else max(0.0, now - self._at)

    def _aged(self, now: float) -> float:
        if self._at is None:
            return self._variance
        return min(self._variance + self._drift * max(0.0, now - self._at), 4.0)


class _Spot:
    """What was seen at nearly one size."""

    __slots__ = ("log", "variance", "x")

    def __init__(self, x: float, log: float, variance: float) -> None:
        self.x = x
        self.log = log
        self.variance = variance


class Curve:
    """A quantity that follows a size by a power: `log y = a + b log x`, both learned (recursive least squares).

    Where a size was seen before, what was seen there counts too: few functions follow one power at all sizes, and most
    are called with the same few sizes again and again.
    """

    __slots__ = (
        "_a",
        "_b",
        "_center",
        "_is_open",
        "_is_work",
        "_noise",
        "_paa",
        "_pab",
        "_pbb",
        "_spot_noise",
        "_spots",
        "_suspect",
        "count",
    )

    def __init__(
        self, intercept: float | None, slope: float, variance: float, slope_variance: float, is_work: bool = False
    ) -> None:
        """`intercept` is log y at the first size that is seen: sizes count from there, which keeps both apart. Without one
        it is what is seen first. `is_work` says that it is a run time, which grows otherwise with a number than with bytes."""
        self._is_open = intercept is None
        self._is_work = is_work
        self._a = intercept or 0.0
        self._b = slope
        self._paa = variance
        self._pab = 0.0
        self._pbb = slope_variance
        self._noise = 0.01
        self._suspect = 0.0
        self._center: float | None = None
        self._spots: dict[int, _Spot] = {}
        self._spot_noise = 0.01
        self.count = 0

    def guess(self, size: float) -> Guess:
        x = self._x(size)
        log = self._a + self._b * x
        variance = max(self._paa + 2 * x * self._pab + x * x * self._pbb, 0.0) + self._noise
        spot = self._spots.get(round(x / SPOT_WIDTH))
        if spot is None:
            return Guess(log, variance + self._bend(size, x), self._noise)
        weight = variance / (variance + spot.variance)
        seen = spot.log + self._b * (x - spot.x)
        return Guess(log + weight * (seen - log), weight * spot.variance + self._spot_noise, self._spot_noise)

    def observe(self, size: float, value: float, noise: float = 0.0) -> None:
        """`noise` is what the measurement itself is unsure by, as a variance of the logarithm."""
        if self._center is None:
            self._begin(size)
            if self._is_open:
                self._a = math.log(max(value, LEAST))
        elif not self.count:
            # Until now there were only bounds: sizes count from what is measured first, and its height is news.
            x = self._x(size)
            self._a += self._b * x
            self._paa += 2 * x * self._pab + x * x * self._pbb + BOUNDS_VARIANCE
            self._pab = 0.0
            self._center += x
        x = self._x(size)
        error = math.log(max(value, LEAST)) - (self._a + self._b * x)
        to_a = self._paa + x * self._pab
        to_b = self._pab + x * self._pbb
        variance = to_a + x * to_b
        total = variance + self._noise + noise
        if self.count >= 2 and error * error > STEP_SIGMAS**2 * total and not self._is_as_seen(x, error):
            # The work itself has changed, or grows otherwise than was thought: what was known of the height goes, the slope
            # stays likely.
            if round(x / SPOT_WIDTH) in self._spots:
                self._spots.clear()
            self._paa += error * error
            to_a += error * error
            variance += error * error
            total = variance + self._noise + noise
            if not _is_step(error, self._suspect):
                total *= 2
            self._suspect = error
        elif self.count >= 2:
            self._suspect = 0.0
            left = min(max(error * error - variance - noise, NOISE_MIN), NOISE_MAX)
            self._noise += NOISE_GAIN * (left - self._noise)
        gain_a, gain_b = to_a / total, to_b / total
        self._a += gain_a * error
        self._b += gain_b * error
        self._paa -= gain_a * to_a
        self._pab -= gain_a * to_b
        self._pbb -= gain_b * to_b
        doubt = FIRST_VARIANCE if self.count == 0 and not self._is_open else 0.0
        self._observe_spot(x, math.log(max(value, LEAST)), doubt + noise)
        # Never quite sure: a function's work may change slowly.
        self._paa += 2e-4 + doubt
        self._pbb = max(self._pbb, 1e-5)
        if noise < VAGUE or not self.count:
            # Only what was measured well counts as seen.
            self.count += 1

    def observe_longer(self, size: float, value: float) -> None:
        """What was measured is more than `value`, by how much nobody knows (Tobit, 1958): the part of it that was thought to
        be less is given up, so what is no surprise teaches next to nothing."""
        if self._center is None:
            self._begin(size)
        x = self._x(size)
        to_a = self._paa + x * self._pab
        to_b = self._pab + x * self._pbb
        seen = Guess(self._a + self._b * x, max(to_a + x * to_b, 0.0) + self._noise)
        known = seen.beyond(value)
        error = known.log - seen.log
        if error * error > STEP_SIGMAS**2 * seen.variance:
            # As with a measurement: what was known of the height goes.
            self._paa += error * error
            to_a += error * error
            seen = Guess(seen.log, seen.variance + error * error)
            known = seen.beyond(value)
            error = known.log - seen.log
        # Only the height: a bound says nothing of the slope that would be worth believing.
        gain = to_a / seen.variance
        left = 1.0 - known.variance / seen.variance
        self._a += gain * error
        self._paa -= gain * to_a * left
        self._pab -= gain * to_b * left
        spot = self._spots.get(round(x / SPOT_WIDTH))
        if spot is not None:
            here = Guess(spot.log + self._b * (x - spot.x), spot.variance + self._spot_noise)
            moved = here.beyond(value).log - here.log
            is_step = moved * moved > STEP_SIGMAS**2 * here.variance
            spot.log += moved * (1.0 if is_step else spot.variance / here.variance)
        elif error > 0.5 * math.sqrt(seen.variance):
            # No measurement, but more than nothing to remember this size by.
            self._spots[round(x / SPOT_WIDTH)] = _Spot(x, known.log, known.variance)

    def start(self, size: float, guess: Guess) -> None:
        """Nothing was measured yet, but this is known of what will be."""
        self._begin(size)
        self._is_open = False
        self._a, self._paa = guess.log, guess.variance
        self.count = 1

    def _begin(self, size: float) -> None:
        self._center = math.log(max(size, 1.0))
        if self._is_work and size <= NUMBERS_MAX:
            self._b, self._pbb = NUMBERS_SLOPE, NUMBERS_SLOPE_VARIANCE

    def _bend(self, size: float, x: float) -> float:
        """The variance of what lies between or beyond the sizes that were seen."""
        if not self._spots:
            return 0.0
        away = min(abs(spot.x - x) for spot in self._spots.values())
        bend = BEND_OF_NUMBERS if size <= NUMBERS_MAX else BEND
        return min((bend * away) ** 2, BEND_MAX)

    def _is_as_seen(self, x: float, error: float) -> bool:
        """Whether what is off the line by `error` is what was seen at this size before."""
        spot = self._spots.get(round(x / SPOT_WIDTH))
        if spot is None:
            return False
        off = self._a + self._b * spot.x + error - spot.log
        return off * off <= STEP_SIGMAS**2 * (spot.variance + self._spot_noise)

    def _observe_spot(self, x: float, log: float, doubt: float) -> None:
        key = round(x / SPOT_WIDTH)
        spot = self._spots.get(key)
        if spot is None:
            if len(self._spots) >= SPOTS_MAX:
                del self._spots[next(iter(self._spots))]
            self._spots[key] = _Spot(x, log, self._spot_noise + doubt)
            return
        error = log - (spot.log + self._b * (x - spot.x))
        total = spot.variance + self._spot_noise + doubt
        if error * error > STEP_SIGMAS**2 * total:
            # As if it were seen for the second time.
            spot.variance = self._spot_noise
            total = 2 * self._spot_noise + doubt
        left = min(max(error * error - spot.variance - doubt, NOISE_MIN), NOISE_MAX)
        gain = spot.variance / total
        self._spot_noise += NOISE_GAIN * (left - self._spot_noise)
        spot.x, spot.log = x, log - (1 - gain) * error
        spot.variance = max((1 - gain) * spot.variance, SPOT_VARIANCE_MIN)

    @property
    def typical(self) -> float:
        """A size that was seen."""
        return math.exp(self._center or 0.0)

    def _x(self, size: float) -> float:
        log = math.log(max(size, 1.0))
        return log - self._center if self._center is not None else 0.0


def _pull(at: float) -> float:
    """The mean of a standard normal beyond `at`."""
    if at > 6.0:
        return at + 1.0 / at
    return math.exp(-at * at / 2) / math.sqrt(2 * math.pi) / (0.5 * math.erfc(at / math.sqrt(2)))


def _is_step(error: float, suspect: float) -> bool:
    """Whether a measurement that is clearly off is believed at once."""
    return abs(error) > math.log(STEP_FACTOR) or error * suspect > 0.0
