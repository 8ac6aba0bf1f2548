"""From which batch a decode step is bound by compute, if from any."""

import math

from kvedu.grading.exercise import Case, Exercise, Mistake


def cases(fresh):
    machines = ((989e12, 4.8e12), (312e12, 2.039e12), (1e12, 1e11))
    steps = ((15e9, 1e6 * fresh.integer(20, 60), 16e9), (15e9, 537e6, 17e9), (1e9, 0.0, 2e9), (270e6, 23e6, 0.3e9))
    found = [Case(f"{w / 1e9:g} GB of weights, {c / 1e6:g} MB of cache, {f / 1e9:g} GFLOP a sequence, ridge {p / b:.0f}", (w, c, f, p, b)) for w, c, f in steps for p, b in machines]
    return [*found, Case("both times equal at B = 20", (1e12, 5e10, 1e12, 1e12, 1e11))]


def right(weights, cache, flops, peak, bandwidth):
    gain = flops / peak - cache / bandwidth
    return math.ceil(weights / bandwidth / gain - 1e-9) if gain > 0 else None


EXERCISE = Exercise(
    title="Over the ridge",
    read="book/16-roofline",
    hint="Write both times as functions of B. When B grows by one, by how much does each of them grow?",
    checked="twelve pairs of a step and a machine, with and without a batch that gets there, and one at the ridge itself",
    cases=cases,
    right=right,
    mistakes=(
        Mistake(lambda w, c, f, p, b: math.ceil(w / b / (f / p) - 1e-9), "each sequence brings a cache of its own to read; only the weights are shared"),
        Mistake(lambda w, c, f, p, b: math.ceil((w + c) / b / (f / p) - 1e-9), "the cache of one sequence is counted, whatever the batch"),
        Mistake(lambda w, c, f, p, b: math.ceil(w / b / (f / p - c / b) - 1e-9), "where a sequence adds more time to read than to compute no batch gets there: the answer is None"),
        Mistake(lambda w, c, f, p, b: math.floor(w / b / (f / p - c / b)) if f / p > c / b else None, "one too few: at the batch rounded down the step still waits for memory"),
    ),
)  # fmt: skip
