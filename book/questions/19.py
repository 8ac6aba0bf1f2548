"""Questions of chapter 19."""

import torch

from kvedu.analysis.hardware import hardware
from kvedu.analysis.issue import issue_rate
from kvedu.book.questions import Choice, Number, Option
from kvedu.caches.formats import integer
from kvedu.kernels import attention
from kvedu.kernels.quantized_attention import QuantizedLayout

H200 = hardware("H200-SXM")
EIGHT = integer(8, 128).sized
SYMMETRIC = integer(4, 64, symmetric=True).sized
LAYOUT = QuantizedLayout(torch.zeros(1, 1, dtype=torch.int32), torch.zeros(1, 4, dtype=torch.int64), residual=32, unit=16)
SEEN = int(LAYOUT.coded(torch.tensor([200]))[0])
NEEDED = 12.0
PER_BYTE = issue_rate(H200, 90) / H200.bandwidth
GROUP = attention.cost(1, 10**6, 32, 8, 128)

QUESTIONS = [
    Number(
        "A head has 128 numbers. Its key is stored in int8 with one scale and one zero point of 16 bits each. How many bytes?",
        EIGHT.bytes_of(1, 1, 128), "bytes", "128 codes of one byte, and four bytes beside them.", by_hand=128 + 2 + 2,
        slips={128: "The scale and the zero point are stored, too.", 130: "An asymmetric code has a zero point beside its scale.", 256: "That is the key in 16 bits."},
    ),
    Number(
        "A head has 64 numbers, stored in symmetric int4 with one scale of 16 bits for each token. How many times smaller than in 16 bits?",
        round(128 / SYMMETRIC.bytes_of(1, 1, 64), 4), "times", "32 bytes of codes and 2 of scale, for 128.", by_hand=128 / 34, tolerance=0.005,
        slips={4: "Codes alone are four times smaller; the scale is stored as well.", round(128 / 36, 4): "Symmetric codes have no zero point."},
    ),
    Choice(
        "A kernel loads int8 codes of a key, and one scale and zero point for the whole key. Where does it multiply by the scale?",
        [
            Option("The score, after the product.", "The scale is the same in all places, so it comes out of the sum: one multiplication a key.", True),
            Option("Each code, before the product.", "It may, and it costs D multiplications a key where one is enough."),
            Option("The query.", "Each key has its own scale, and the query meets all of them."),
            Option("The output.", "The scores have gone through a softmax by then."),
        ],
    ),
    Number(
        f"Your loop takes {NEEDED:g} instructions for each number of a cache with 1 byte a number. How many times faster than in 16 bits can it be on an H200 at most, if the 16-bit loop is bound by bytes? (An H200 issues {PER_BYTE:.1f} instructions in the time of a byte.)",
        round(2 * PER_BYTE / NEEDED, 3), "times", "16 bits take the time of two bytes, 14 instructions' worth. The new loop takes 12.", by_hand=14 / 12, tolerance=0.02,
        slips={2: "By bytes, yes. But 12 instructions take longer than a byte.", round(PER_BYTE / NEEDED, 3): "That compares with one byte; in 16 bits there are two."},
    ),
    Choice(
        "A chip of capability 8.0 has no instruction for 8-bit floats. What about an fp8 cache on it?",
        [
            Option("It works, by shifts of integers, and costs more instructions.", "A byte's fields are moved into those of a 16-bit float. Memory is saved as anywhere; speed need not follow.", True),
            Option("It is impossible: fp8 needs hardware.", "Computing products in fp8 does. Here nothing is computed in fp8."),
            Option("The codes are read as int8.", "The bits mean something else: an exponent, and a mantissa."),
            Option("It must be converted to int8 when it is loaded.", "Bits are turned into fp16 in registers; nothing is stored again."),
        ],
    ),
    Number(
        "Keys are coded in groups of 16 tokens, and the last 32 tokens stay exact. How many tokens does a query with 200 tokens before it see as codes?",
        SEEN, "tokens", "168 are old enough, and ten groups of 16 are complete among them.", by_hand=(200 - 32) // 16 * 16,
        slips={168: "So many are old enough, but eight of them fill no group.", 192: "The last 32 stay exact.", 176: "A group that is not complete is not coded."},
    ),
    Choice(
        "A page was freed by one sequence and given to another. It now holds five tokens, in a format with groups of 16 tokens. What is in its codes?",
        [
            Option("What the former owner left there.", "Nobody codes a group before it is complete; the five tokens wait in the exact tail. A kernel must not read the group.", True),
            Option("Five tokens and eleven zeros.", "A group is written when it is complete, not before."),
            Option("Nothing: it is allocated when it is full.", "The page is there, since its other groups may be full already."),
        ],
    ),
    Number(
        "How many FLOPs does attention do in 16 bits for each byte of keys and values that a decode step reads, with 4 query heads to a KV head?",
        round(GROUP.flops / GROUP.bytes, 3), "FLOPs a byte", "For each key and value, 4 · 2 · 2 · D FLOPs and 2 · 2 · D bytes.", by_hand=4 * (2 + 2) / (2 * 2), tolerance=0.01, chapter=18,
        slips={1: "Each key meets 4 queries.", 2: "Count the products with the values, too.", 8: "A multiply-add is two FLOPs, not four; and there are two tensors to read."},
    ),
    Choice(
        "Why do keys want a scale for each channel, and values one for each token?",
        [
            Option("Keys have channels that are large in every token.", "In a group along the head they would stretch every token's range; in a group of their own they only stretch their own. Values have none.", True),
            Option("It saves bytes.", "Both cost the same for groups of the same size."),
            Option("It is faster.", "Groups along the tokens cost instructions and an exact tail."),
        ],
        chapter=12,
    ),
]  # fmt: skip
