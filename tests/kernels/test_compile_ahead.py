"""Every Triton kernel compiles for four generations of chips without one being there, and fits into them; a few for their smaller chips."""

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from kvedu.kernels.launch import Chip, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"no Triton: {missing()} (no GPU needed)")
OLDER = not missing() and version("triton").startswith("3.6.")
SPILLS_ALLOWED = 8 if OLDER else 0
"""Bytes of stack of a thread on capability 8.0 and later. The assembler of Triton 3.6 spills two registers of decode over codes, to
have three programs of 168 where the next one has two of 194."""
SPILLS = {80: {"decode, D = 8 (attend)": 8}, 90: {f"decode over e4m3{half} (attend_codes)": 8 for half in ("", " in fp16")}, 120: {"decode, D = 256 (attend)": 16}}
"""The same by capability, in Triton 3.7 too: two or four registers, before the loop or after it, to have four programs of 128, three of 168 or two of 128 and 8 warps."""

MERGES = """
import hashlib, torch
from kvedu.kernels.ahead import compiled
from kvedu.kernels.softmax_triton import plan_merge
for D in (128, 24):
    for S in (1, 3, 32, 200):
        parts, logs = torch.empty(4, 8, S, D, device="meta"), torch.empty(4, 8, S, device="meta")
        launch = plan_merge(parts, logs, torch.empty(4, 8, D, dtype=torch.float16, device="meta"), fixed=True)
        print(D, hashlib.sha256(compiled(launch, 90).asm["ptx"].encode()).hexdigest())
"""


def without_interpreter(*command: str) -> list[str]:
    """Lines that a Python process prints whose Triton compiles."""
    env = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def test_a_fixed_merge_is_one_code_whatever_it_merges():
    """C046: how many splits there are is decided by the longest neighbor; it must not decide the order of a sum."""
    lines = without_interpreter("-c", MERGES)
    assert len(lines) == 8 and len(set(lines)) == 2, "one code for each width of a head"


@pytest.mark.parametrize("capability", [75, 80, 86, 89, 90, 100, 120])
def test_compiles_and_fits(capability):
    """No stack on 8.0 and later but what ``SPILLS`` names, shared memory of the chip; products by tensor cores from 8.0 on, by wgmma in prefill on 9.0."""
    lines = without_interpreter(str(Path(__file__).parent / "catalogue.py"), str(capability))
    found = {row["name"]: row for row in map(json.loads, lines)}
    assert len(found) > (1 if capability in (86, 89, 120) else 25)
    shared, wrong, allowed = Chip.known(capability).shared, [], SPILLS.get(capability, {})
    for name, row in found.items():
        if row["registers"] > 255 or row["shared"] > shared or (capability >= 80 and row["stack"] > allowed.get(name, SPILLS_ALLOWED)):
            wrong.append(row)
        if "(attend" in name and "fp32" not in name and "float32" not in name and capability >= 80 and row["product"] == "fma":
            wrong.append(row)
    assert not wrong, "\n".join(map(str, wrong))
    if capability == 90:
        assert found["prefill (attend)"]["product"] == "wgmma"


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942"])
def test_compiles_for_amd(arch):
    """MI200 and MI300: products by matrix cores, 64 KiB of shared memory. The first knows no tf32, and refuses to be asked for it."""
    found = [json.loads(line) for line in without_interpreter(str(Path(__file__).parent / "catalogue.py"), arch)]
    assert len(found) == 5
    for row in found:
        assert row["shared"] <= 64 * 1024 and row["mfma"] == ("merge" not in row["name"]), row
