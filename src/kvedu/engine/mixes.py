"""Length mixes of published workloads: lognormal distributions with the medians, means or percentiles that were printed.

What was not printed is not known: prompt and output are drawn independently, and a tail follows
from the fit (``fitted`` says to which two numbers; a lognormal has two). Lengths are tokens of the models that were
traced. For a small model with few positions, ``scaled`` keeps the shape and divides the lengths.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist

from kvedu.engine.workload import Lognormal
from kvedu.errors import KveduError


def by_mean(median: float, mean: float) -> Lognormal:
    """The lognormal with this median and mean: sigma = sqrt(2 ln(mean / median))."""
    if not 0 < median <= mean:
        raise KveduError(f"a lognormal's mean is at least its median; got median {median}, mean {mean}")
    return Lognormal(median, math.sqrt(2 * math.log(mean / median)))


def by_p90(median: float, p90: float) -> Lognormal:
    """The lognormal with this median and 90th percentile: sigma = ln(p90 / median) / 1.2816."""
    if not 0 < median <= p90:
        raise KveduError(f"the 90th percentile is at least the median; got median {median}, P90 {p90}")
    return Lognormal(median, math.log(p90 / median) / NormalDist().inv_cdf(0.9))


@dataclass(frozen=True)
class Mix:
    """Prompt and output lengths of one workload, where they are from, and which numbers they were fitted to."""

    name: str
    prompt: Lognormal
    output: Lognormal
    source: str
    fitted: str

    def scaled(self, factor: float, longest_prompt: int | None = None, longest_output: int | None = None) -> Mix:
        """All lengths times ``factor``, cut at the longest ones: 0.1 makes a workload of a laptop's size."""
        return replace(
            self,
            name=f"{self.name} x {factor:g}",
            prompt=Lognormal(self.prompt.median * factor, self.prompt.sigma, longest_prompt),
            output=Lognormal(self.output.median * factor, self.output.sigma, longest_output),
        )


_SPLITWISE = (
    "Patel et al. 2024 (Splitwise), traces of two Azure services in November 2023; the means are those of the published "
    "trace, AzurePublicDataset, AzureLLMInferenceDataset2023"
)
_SARATHI = "Agrawal et al. 2024 (Sarathi-Serve), table 2"

AZURE_CONVERSATION = Mix(
    "Azure conversation 2023",
    by_mean(1020, 1155),
    by_mean(129, 211),
    _SPLITWISE,
    "medians and means of prompt (1020, 1155) and output (129, 211); the real output has two humps and a shorter tail",
)
AZURE_CODE = Mix(
    "Azure code 2023",
    by_mean(1500, 2048),
    by_mean(13, 28),
    _SPLITWISE,
    "medians and means of prompt (1500, 2048) and output (13, 28)",
)
SHAREGPT4 = Mix(
    "openchat_sharegpt4",
    by_p90(1730, 5696),
    by_p90(415, 834),
    _SARATHI,
    "medians and 90th percentiles of prompt (1730, 5696) and output (415, 834); a prompt holds the turns before it",
)
ARXIV_SUMMARIZATION = Mix(
    "arxiv_summarization",
    by_p90(7059, 12985),
    by_p90(208, 371),
    _SARATHI,
    "medians and 90th percentiles of prompt (7059, 12985) and output (208, 371)",
)

MIXES = (AZURE_CONVERSATION, AZURE_CODE, SHAREGPT4, ARXIV_SUMMARIZATION)
