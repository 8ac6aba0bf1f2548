"""Codes cut out of 16-bit words: the formula, and the machine's version of it, bit by bit."""

import re

import pytest
import torch

from kvedu.kernels.codes import unpack
from kvedu.kernels.launch import missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"no Triton: {missing()} (no GPU needed)")


def permuted(a, b, selector):
    """PTX's prmt: bytes 0 .. 3 are those of a, 4 .. 7 of b."""
    both = a | b << 32
    return sum((both >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i for i in range(4))


def as_told_to_the_assembler(ptx, registers):
    """What the few instructions of ``two_at_once`` do to registers of 32 bits."""
    if ptx.startswith("{"):
        ptx = re.fullmatch(r"\{ (?:\.reg [^;]*; )+(.*) \}", ptx)[1]
    x = result = None
    for line in filter(None, (part.strip() for part in ptx.split(";"))):
        name, to, *arguments = re.findall(r"[\w.$]+", line)
        if name == "mov.b32" and to == "a":  # the halves of x
            continue
        a, *b = (registers if one == "$1" else x if one in "xa" else int(one, 0) for one in arguments)
        done = {
            "mov.b32": lambda: a, "shr.b32": lambda: a >> b[0], "and.b32": lambda: a & b[0], "xor.b32": lambda: a ^ b[0],
            "prmt.b32": lambda: permuted(a, *b), "lop3.b32": lambda: {0x6A: (a & b[0]) ^ b[1]}[b[2]], "cvt.rn.f16x2.e4m3x2": lambda: converted(a & 0xFFFF),
        }[name]()  # fmt: skip
        x, result = (done, result) if to == "x" else (x, done)
    return result


def converted(pairs):
    """Two e4m3 numbers as two of fp16."""
    halves = [(pairs >> 8 * i & 255).to(torch.uint8).view(torch.float8_e4m3fn).half().view(torch.uint16).long() for i in range(2)]
    return halves[0] | halves[1] << 16


@pytest.mark.parametrize("kind, dtype", [(1, torch.float8_e4m3fn), (2, torch.float8_e5m2)])
def test_each_float_is_cut_out_exactly(kind, dtype):
    """All words of two 8-bit floats, NaN and infinities too."""
    from kvedu.kernels.words_triton import two_at_once

    words = torch.arange(1 << 16).to(torch.uint16)
    wanted = words.view(torch.uint8).view(dtype).view(-1, 2).half()
    registers = words.long() | words.long().flip(0) << 16
    for j in range(2):
        cut = as_told_to_the_assembler(two_at_once(j, kind, 8, True), registers)
        low, high = (half.to(torch.uint16).view(torch.float16) for half in (cut & 0xFFFF, cut >> 16))
        assert torch.equal(low.nan_to_num(-1), wanted[:, j].nan_to_num(-1)) and torch.equal(high.nan_to_num(-1), wanted[:, j].flip(0).nan_to_num(-1))


@pytest.mark.parametrize("bits", [8, 4, 2])
@pytest.mark.parametrize("signed", [False, True])
def test_each_code_is_cut_out_exactly(bits, signed):
    """All words of 16 bits, two in a register, against ``unpack``; signed codes down to the lowest, -128 in 8 bits."""
    from kvedu.kernels.words_triton import lift, two_at_once, weight

    words = torch.arange(1 << 16).to(torch.uint16)
    wanted = unpack(words.view(torch.uint8).view(-1, 2), bits, 16 // bits, signed=signed).float()
    registers = words.long() | words.long().flip(0) << 16
    for j in range(16 // bits):
        cut = as_told_to_the_assembler(two_at_once(j, 0, bits, signed), registers)
        halves = torch.stack((cut & 0xFFFF, cut >> 16)).to(torch.uint16).view(torch.float16).double()
        codes = (halves - lift(j, bits, signed)) * weight(j, 0, bits)
        assert torch.equal(codes[0].float(), wanted[:, j]) and torch.equal(codes[1].float(), wanted[:, j].flip(0))
