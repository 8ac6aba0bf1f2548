"""Instructions of a kernel's loop, read from machine code."""

import json
import os
import subprocess
import sys

import pytest

from kvedu.kernels.instructions import Loop, longest_in
from kvedu.kernels.launch import KernelError, missing

CODE = """
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_0:
        /*0010*/                   LDG.E.U8 R2, [R4.64] ;
        /*0020*/              @!P0 BRA `(.L_x_0) ;
.L_x_2:
        /*0030*/                   LDG.E R2, [R4.64] ;
        /*0040*/              @P1  BRA `(.L_x_3) ;
        /*0050*/                   FFMA R3, R2, R2, R3 ;
        /*0060*/                   FFMA R3, R2, R2, R3 ;
.L_x_3:
        /*0070*/              @!UP0 BRA `(.L_x_2) ;
        /*0080*/                   EXIT ;
"""
SCRIPT = """
import json, torch
from kvedu.kernels.instructions import longest_loop
from kvedu.kernels.softmax_triton import plan_softmax
x = torch.empty(4, 5000, device="meta")
found = longest_loop(plan_softmax(x, x, 1024), 80)
print(json.dumps([found.instructions, found.kinds]))
"""


def test_the_longest_loop_is_found_and_jumps_ahead_are_none():
    assert longest_in(CODE) == Loop(5, {"FFMA": 2, "BRA": 2, "LDG": 1})


def test_code_without_a_loop_is_refused():
    with pytest.raises(KernelError, match="no loop"):
        longest_in(CODE.replace("(.L_x_0)", "(.L_x_9)").replace("(.L_x_2)", "(.L_x_3)"))


@pytest.mark.skipif(bool(missing()), reason=f"no Triton: {missing()} (no GPU needed)")
def test_a_compiled_kernel_is_read():
    """A softmax of long rows: its loop loads and takes exponentials."""
    env = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr[-2000:]
    instructions, kinds = json.loads(done.stdout)
    assert instructions == sum(kinds.values()) > 20 and kinds["LDG"] >= 1 and kinds["MUFU"] >= 8
