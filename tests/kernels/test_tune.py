"""Trying blocks: the quickest is taken, kept, and changes no result."""

import pytest
import torch
from scenes import DEVICE, make_scene

from kvedu.errors import KveduError
from kvedu.kernels.launch import Chip, missing, runs_on
from kvedu.kernels.paged_attention import paged_attention
from kvedu.kernels.tune import tune

pytestmark = pytest.mark.skipif(not runs_on(torch.device(DEVICE)), reason=f"no Triton: {missing()} (no GPU needed)")


def test_the_quickest_is_kept_and_the_result_is_the_same(tmp_path):
    """C094: with tuning on, the first call, the second and an untuned one agree; trials leave keys and values as they were."""
    from kvedu.kernels.paged_attention_triton import plan_attention

    scene, tried = make_scene([(1, 30), (1, 3)], 4, 2, 16, 8), []
    before = [x.clone() for x in (scene.q, scene.k, scene.v)]
    out = torch.empty_like(scene.q)

    def plan(**blocks):
        return plan_attention(scene.q, scene.k, scene.v, scene.layout.tables, scene.layout.rows, out, chip=Chip(), **blocks)

    def seconds(function):  # a clock that makes the second one quickest
        function()
        tried.append(1)
        return {1: 3.0, 2: 1.0, 3: 2.0}[len(tried)]

    candidates = [{"block_m": 16, "block_s": s} for s in (16, 32, 64)]
    for _ in range(2):
        blocks = tune("test", plan, candidates, (2, 30), time=seconds, folder=tmp_path)
        assert blocks == candidates[1] and len(tried) == 3
        tuned = paged_attention(scene.q, scene.k, scene.v, scene.layout, triton=True, **blocks)
        assert torch.allclose(tuned, paged_attention(scene.q, scene.k, scene.v, scene.layout, triton=True), atol=2e-3)
    assert all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(before, (scene.q, scene.k, scene.v)))
    tried.clear()
    assert tune("test", plan, candidates, "other shapes", time=seconds, folder=tmp_path) == candidates[1] and len(tried) == 3


def test_what_cannot_be_launched_is_passed_over(tmp_path):
    def plan(block):
        if block > 16:
            raise ValueError("too much shared memory")
        return []

    assert tune("a", plan, [{"block": 64}, {"block": 16}], 0, time=lambda f: 1.0, folder=tmp_path) == {"block": 16}
    with pytest.raises(KveduError, match="none of the candidates can be launched here.*too much shared memory"):
        tune("b", plan, [{"block": 64}], 0, time=lambda f: 1.0, folder=tmp_path)
