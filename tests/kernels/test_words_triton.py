"""Codes cut out of 16-bit words: the formula, and the machine's version of it, bit by bit."""

import re

import pytest
import torch

from kvedu.kernels.codes import unpack
from kvedu.kernels.launch import missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"no Triton: {missing()} (no GPU needed)")


def as_told_to_the_assembler(ptx, registers):
    """What the few instructions of ``two_at_once`` do to registers of 32 bits."""
    body = re.fullmatch(r"\{ \.reg \.b32 x; (.*) \}", ptx)[1]
    x = result = None
    for line in filter(None, (part.strip() for part in body.split(";"))):
        name, to, a, *b = re.findall(r"[\w.$]+", line)
        a, b = (registers if a == "$1" else x), int(b[0], 0) if b else None
        done = {"mov.b32": lambda: a, "shr.b32": lambda: a >> b, "and.b32": lambda: a & b, "xor.b32": lambda: a ^ b}[name]()
        x, result = (done, result) if to == "x" else (x, done)
    return result


@pytest.mark.parametrize("bits", [8, 4, 2])
@pytest.mark.parametrize("signed", [False, True])
def test_each_code_is_cut_out_exactly(bits, signed):
    """All words of 16 bits, two in a register, against ``unpack``; signed codes down to the lowest, -128 in 8 bits."""
    from kvedu.kernels.words_triton import lift, two_at_once, weight

    words = torch.arange(1 << 16).to(torch.uint16)
    wanted = unpack(words.view(torch.uint8).view(-1, 2), bits, 16 // bits, signed=signed).float()
    registers = words.long() | words.long().flip(0) << 16
    for j in range(16 // bits):
        cut = as_told_to_the_assembler(two_at_once(j, bits, signed), registers)
        halves = torch.stack((cut & 0xFFFF, cut >> 16)).to(torch.uint16).view(torch.float16).double()
        codes = (halves - lift(j, bits, signed)) * weight(j, bits)
        assert torch.equal(codes[0].float(), wanted[:, j]) and torch.equal(codes[1].float(), wanted[:, j].flip(0))
