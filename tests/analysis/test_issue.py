"""Instructions that a GPU issues a second."""

import pytest

from kvedu.analysis.hardware import hardware
from kvedu.analysis.issue import issue_rate


def test_four_warps_a_clock():
    """By hand: multiprocessors times 128 times the boost clock of the datasheet."""
    for name, capability, processors, clock in (("T4", 75, 40, 1.59e9), ("A100-80GB-SXM", 80, 108, 1.41e9), ("H100-SXM", 90, 132, 1.98e9)):
        assert issue_rate(hardware(name), capability) == pytest.approx(processors * 128 * clock, rel=0.01)
