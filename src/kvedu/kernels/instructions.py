"""What a kernel's main loop is made of, read from its machine code: instructions a thread and pass, without a GPU.

A chip reads so many bytes a second and issues so many instructions a second. Whichever a loop needs more of bounds it;
for a decode kernel over 16-bit numbers it is bytes, for one that unpacks codes it need not be. ``analysis/issue`` says how
many a chip issues. The count is static: every instruction of the loop once, the slow and the quick ones alike, so what
follows from it is a bound, not a time.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from kvedu.kernels.ahead import compiled
from kvedu.kernels.launch import KernelError, Launch


@dataclass(frozen=True)
class Loop:
    """Instructions of one pass, for each thread, and how many of each kind."""

    instructions: int
    kinds: dict[str, int]


def longest_loop(launch: Launch, capability: int) -> Loop:
    """The loop of the compiled launch that has most instructions: a decode kernel's walk over its keys, one tile a pass.

    Raises ``KernelError`` where there is no loop, or in a process whose Triton interprets. Cost: a second or several.
    """
    return longest_in(disassembled(compiled(launch, capability).asm["cubin"]))


def disassembled(cubin: bytes) -> str:
    """Machine code as text, by the ``nvdisasm`` in Triton's wheel."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return subprocess.run([str(tool), "-c", file.name], capture_output=True, text=True, check=True).stdout


def longest_in(text: str) -> Loop:
    """The longest stretch between a label and a jump back to it."""
    names: list[str] = []
    labels: dict[str, int] = {}
    jumps: list[tuple[int, str]] = []
    for line in text.splitlines():
        if label := re.match(r"\s*(\.L_\w+):", line):
            labels[label[1]] = len(names)
        elif code := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9]*)([^;]*);", line):
            if code[1] == "BRA" and (target := re.search(r"\.L_\w+", code[2])):
                jumps.append((len(names), target[0]))
            names.append(code[1])
    loops = [names[labels[to] : at + 1] for at, to in jumps if labels.get(to, at + 1) < at]
    if not loops:
        raise KernelError("this machine code has no loop")
    longest = max(loops, key=len)
    return Loop(len(longest), dict(Counter(longest).most_common()))
