"""Metrics of traces small enough to work out by hand."""

import pytest

from kvedu.engine.metrics import (
    block_utilization,
    goodput_per_second,
    output_tokens_per_second,
    percentile,
    preemptions,
    prefix_hits,
    slot_utilization,
    span_seconds,
    timings,
)
from kvedu.engine.trace import Admitted, Arrived, Ended, Preempted, Share, Stepped, Trace
from kvedu.errors import KveduError


def stepped(start, time, *shares, used=2, evictable=1, free=1):
    return Stepped(time, start, 0, tuple(Share(*share) for share in shares), 0, used, evictable, free)


def two_requests() -> Trace:
    """Request 0 comes at 1 and samples at 3, 4, 6. Request 1 comes at 2, waits to 4, samples at 6 only; both end at 6."""
    return Trace(
        [
            Arrived(1.0, 0, 10, 3),
            Admitted(1.5, 0, 0, 8, False),
            Arrived(2.0, 1, 4, 1),
            stepped(1.5, 3.0, (0, 0, 2, 8, True)),
            stepped(3.0, 4.0, (0, 0, 1, 10, True)),
            Admitted(4.0, 1, 0, 0, False),
            stepped(4.0, 6.0, (0, 0, 1, 11, True), (1, 0, 4, 0, True), used=4, evictable=0, free=0),
            Ended(6.0, 0, 0, "length", 3),
            Ended(6.0, 1, 0, "stop", 1),
        ]
    )


def test_times_of_a_completion():
    first, second = timings(two_requests())
    assert first.token_seconds == (3.0, 4.0, 6.0)
    assert (first.queue_seconds, first.ttft_seconds, first.tpot_seconds, first.latency_seconds) == (0.5, 2.0, 1.5, 5.0)
    assert first.itl_seconds == (1.0, 2.0) and first.complete
    assert (second.queue_seconds, second.ttft_seconds, second.tpot_seconds, second.latency_seconds) == (2.0, 4.0, None, 4.0)
    assert second.itl_seconds == () and second.reason == "stop"


def test_rates_and_utilization():
    trace = two_requests()
    assert span_seconds(trace) == 5.0
    assert output_tokens_per_second(trace) == 4 / 5
    # 1 of 4 slots for 2.5 s, 2 of 4 for 2 s; 2 of 4 blocks, then 4 of 4.
    assert slot_utilization(trace, 4) == pytest.approx((0.25 * 2.5 + 0.5 * 2) / 4.5)
    assert block_utilization(trace) == pytest.approx((0.5 * 2.5 + 1.0 * 2) / 4.5)


@pytest.mark.parametrize(
    "ttft, tpot, good", [(4.0, 1.5, 2), (3.9, 1.5, 1), (4.0, 1.4, 1), (1.9, 9.0, 0), (2.0, 1.4, 0)]
)
def test_goodput_counts_those_that_meet_both_limits(ttft, tpot, good):
    assert goodput_per_second(two_requests(), ttft, tpot) == good / 5


def test_goodput_leaves_out_what_did_not_end_as_it_should():
    trace = two_requests()
    trace.events[-1] = Ended(6.0, 1, 0, "abort", 1)
    assert goodput_per_second(trace, 99, 99) == 1 / 5
    del trace.events[-1]
    assert goodput_per_second(trace, 99, 99) == 1 / 5
    assert timings(trace)[1].latency_seconds is None and timings(trace)[1].ttft_seconds == 4.0


def test_copies_get_their_first_token_with_the_prompt():
    """A chunk that samples nothing gives nobody a token; the prompt's last gives one to each copy; a broken row none."""
    trace = Trace(
        [
            Arrived(0.0, 0, 6, 3, copies=3),
            Admitted(0.0, 0, 0, 0, False),
            stepped(0.0, 1.0, (0, 0, 4, 0, False)),
            stepped(1.0, 2.0, (0, 0, 2, 4, True)),
            Ended(2.0, 0, 2, "error", 0),
            stepped(2.0, 3.0, (0, 0, 1, 6, True), (0, 1, 1, 6, True)),
            Ended(3.0, 0, 1, "stop", 2),
            stepped(3.0, 5.0, (0, 0, 1, 7, True)),
            Ended(5.0, 0, 0, "length", 3),
        ]
    )
    assert [t.token_seconds for t in timings(trace)] == [(2.0, 3.0, 5.0), (2.0, 3.0), ()]
    assert [t.latency_seconds for t in timings(trace)] == [5.0, 3.0, 2.0]
    assert timings(trace)[2].ttft_seconds is None
    assert output_tokens_per_second(trace) == 1.0


def test_preemption_moves_neither_admission_nor_hits():
    trace = Trace(
        [
            Arrived(0.0, 0, 20, 2),
            Arrived(0.0, 1, 16, 2),
            Arrived(0.0, 2, 17, 2),
            Arrived(0.0, 3, 40, 2),
            Admitted(1.0, 0, 0, 16, False),
            Admitted(1.0, 1, 0, 0, False),
            Preempted(2.0, 0, 0, 20),
            Admitted(3.0, 0, 0, 16, True),
            Admitted(4.0, 2, 0, 0, False),
        ]
    )
    assert preemptions(trace) == 1
    assert [t.queue_seconds for t in timings(trace)] == [1.0, 1.0, 4.0, None]
    hits = prefix_hits(trace, page_size=16)  # of 16 tokens one is always computed: no page; 17 have one
    assert (hits.prompt_tokens, hits.reused_tokens, hits.too_short, hits.too_short_tokens) == (37, 16, 1, 16)
    assert hits.rate == 16 / 37
    assert prefix_hits(trace, page_size=64).rate == 0.0 and prefix_hits(trace, page_size=64).too_short == 3


def test_percentiles():
    assert percentile([5.0], 99) == 5.0
    assert percentile([3.0, 1.0, 2.0], 50) == 2.0
    assert [percentile([0.0, 10.0], p) for p in (0, 25, 100)] == [0.0, 2.5, 10.0]
    for values, percent in (([], 50), ([1.0], 101), ([1.0], -1)):
        with pytest.raises(KveduError, match="percentile"):
            percentile(values, percent)


def test_no_time_no_rate():
    with pytest.raises(KveduError, match="no time"):
        output_tokens_per_second(Trace())
    with pytest.raises(KveduError, match="mean"):
        slot_utilization(Trace([Arrived(0.0, 0, 1, 1)]), 4)
