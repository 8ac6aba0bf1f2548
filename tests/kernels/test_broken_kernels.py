"""The laws can fail: copies of three kernels, each with one slip that people make, must turn them red."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch
from attention_laws import law_equals_definition
from scenes import DEVICE, make_scene
from test_quantized_attention import Made

from kvedu.caches.formats import integer
from kvedu.kernels.launch import Chip, missing, runs_on
from kvedu.kernels.quantized_attention import quantized_attention_reference
from kvedu.kernels.quantized_pages import quantized_write_reference
from kvedu.kernels.rope import cos_sin
from kvedu.kernels.rope_write import rope_write_reference
from kvedu.rope_config import RopeConfig

pytestmark = [
    pytest.mark.skipif(not runs_on(torch.device(DEVICE)), reason=f"no Triton: {missing()} (no GPU needed)"),
    pytest.mark.skipif(DEVICE != "cpu", reason="broken kernels are run in the interpreter, where a wrong address harms nobody"),
]
KERNELS = Path(sys.modules["kvedu.kernels.launch"].__file__).parent


def copy_of(name, folder, old="", new=""):
    """A kernel's module from a copy of its file, with one change."""
    source = (KERNELS / f"{name}.py").read_text("utf-8")
    assert not old or source.count(old) == 1, f"{old!r} stands {source.count(old)} times in {name}.py"
    path = folder / f"{name}_copy.py"
    path.write_text(source.replace(old, new) if old else source, "utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def attention_law(module):
    def run(q, k, v, layout, window=None, **blocks):
        out = torch.empty_like(q)
        for launch in module.plan_attention(q, k, v, layout.tables, layout.rows, out, chip=Chip(), window=window, **blocks):
            launch.run()
        return out

    law_equals_definition(run, make_scene([(5, 12), (1, 20)], 6, 2, 16, 8, dtype=torch.float32), 9, block_m=16, block_s=16)


def quantized_law(module):
    made = Made(integer(8, 64), integer(8, 64), torch.float32, counts=(1, 1), starts=(20, 3)).write(quantized_write_reference)

    def run(q, keys, values, k, v, layout, window):
        out = torch.empty_like(q)
        for launch in module.plan_quantized_attention(q, keys, values, k, v, layout.tables, layout.rows, out, chip=Chip(), block_s=16):
            launch.run()
        return out

    torch.testing.assert_close(made.attend(run), made.attend(quantized_attention_reference), rtol=1e-4, atol=1e-5)


def write_law(module):
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, heads, 16, generator=generator) for heads in (4, 2, 2))
    cos, sin = cos_sin(RopeConfig(dim=16), torch.tensor([5, 1]), torch.float32)
    slots, pages = torch.tensor([4, 1]), [[torch.zeros(2, 3, 2, 16) for _ in "kv"] for _ in "ab"]
    out = torch.empty_like(q)
    module.plan_rope_write(q, k, v, cos, sin, *pages[0], slots, out).run()
    torch.testing.assert_close(out, rope_write_reference(q, k, v, cos, sin, *pages[1], slots))
    for got, wanted in zip(*pages):
        torch.testing.assert_close(got, wanted)


CASES = {
    "mask": ("paged_attention_triton", attention_law, "visible = keys[None, :] <= last_M[:, None]", "visible = keys[None, :] < last_M[:, None]"),
    "window": ("paged_attention_triton", attention_law, "visible = visible & (keys[None, :] > last_M[:, None] - width)", "visible = visible & (keys[None, :] >= last_M[:, None] - width)"),
    "tiled heads": ("paged_attention_triton", attention_law, "at_head = head * G + row % G", "at_head = row % G * tl.num_programs(0) + head"),
    "scale": ("quantized_attention_triton", quantized_law, "weights = p * (v_scale / most)[None, :]", "weights = p"),
    "zero point": ("quantized_attention_triton", quantized_law, "s += q_sum[:, None] * k_zero[None, :]", "s += k_zero[None, :]"),
    "stride": ("rope_write_triton", write_law, "k_pages + page * kp_p + place * kp_c, cos", "k_pages + page * kp_p + place * kp_k, cos"),
    "sign": ("rope_write_triton", write_law, "low * c - high * s", "low * c + high * s"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_broken_copy_turns_the_law_red(name, tmp_path):
    kernel, law, old, new = CASES[name]
    with pytest.raises(AssertionError):
        law(copy_of(kernel, tmp_path, old, new))


@pytest.mark.parametrize("kernel, law", sorted({case[:2] for case in CASES.values()}, key=lambda case: case[0]))
def test_an_honest_copy_stays_green(kernel, law, tmp_path):
    law(copy_of(kernel, tmp_path))
