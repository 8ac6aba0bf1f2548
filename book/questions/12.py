"""Questions of chapter 12."""

from kvedu.analysis.known_models import known_model
from kvedu.analysis.memory import kv_bytes_per_token, kv_cache_bytes
from kvedu.book.questions import Choice, Number, Option
from kvedu.caches.formats import integer
from kvedu.units import GiB

FOUR = integer(4, 64)
LLAMA = known_model("Llama-3-8B").shape
TOKENS, GROUP, RESIDUAL = 1_000, 32, 128
KIVI = integer(2, GROUP, "tokens").sized

QUESTIONS = [
    Number(
        "Codes of 2 bits in groups of 16, with a scale and a zero point of 16 bits each. How many bits does a number take?",
        integer(2, 16).sized.bits_per_element, "bits", "2 bits of its own and a 16th part of 32. The scale and the zero point take as much as the code.",
        by_hand=2 + 32 / 16, slips={2: "Scales and zero points are stored too.", 3: "An asymmetric group has a zero point beside its scale.", 34: "The group shares one scale; a number pays its part."},
    ),
    Choice(
        "One channel of the keys is ten times as large as the others, in every token. What does it do to 4-bit codes per token?",
        [
            Option("It stretches every token's scale, so that the other channels share very few codes.", "The scale must reach from the smallest to the largest number of the group, and each group has the channel in it.", True),
            Option("It comes back badly itself, the others are fine.", "It is the other way round: the largest number has a code of its own, the small ones are crowded together."),
            Option("Nothing, since all tokens have it.", "That is why it does nothing per channel. Per token it stands in every group."),
        ],
    ),
    Choice(
        "You code the values per channel. Their own error falls a little, and the answers get worse. What do you look at?",
        [
            Option("The error of the tokens that attention reads most, the first one above all.", "Errors count by how much they are read. A token unlike its neighbors that shares scales with them comes back badly, and it may be read more than all others.", True),
            Option("The error of the keys.", "They have not changed."),
            Option("The packing: a smaller error cannot make worse answers.", "It can. The mean over all numbers is not what attention uses."),
        ],
    ),
    Number(
        f"KIVI in 2 bits: keys in groups of {GROUP} tokens, a tail of {RESIDUAL} exact ones. A sequence has {TOKENS:,} tokens. How many of its keys are coded?",
        KIVI.coded(TOKENS, RESIDUAL), "tokens", f"{TOKENS - RESIDUAL} may be coded, and {KIVI.coded(TOKENS, RESIDUAL) // GROUP} whole groups of {GROUP} are among them.",
        by_hand=(1000 - 128) // 32 * 32, slips={TOKENS - RESIDUAL: "Keys are coded in whole groups only.", TOKENS // GROUP * GROUP: "The last 128 stay as they are.", TOKENS: "The last 128 stay as they are."},
    ),
    Choice(
        "A cache in 8 bits makes decode slower, not faster. Which is the likeliest reason?",
        [
            Option("It turns all codes into numbers in memory before attention reads them.", "Then the full-size numbers are written and read on top of the codes. A kernel must read the codes themselves.", True),
            Option("The chip has no INT8 tensor cores.", "None are needed: codes are scaled back to floats, and attention goes on with those."),
            Option("8 bits are too few, so that more tokens must be generated.", "The number of tokens does not depend on the cache's format."),
        ],
    ),
    Number(
        "Llama-3-8B, one sequence of 131,072 tokens in 4 bits per token, groups of 64, scales and zero points of 16 bits. How large is the cache?",
        round(kv_cache_bytes(LLAMA, 131_072, keys=FOUR.sized, values=FOUR.sized) / GiB, 3), "GiB", "16 GiB in 16 bits, times 4.5 / 16.",
        by_hand=16 * 4.5 / 16, tolerance=0.01, slips={4.0: "Scales and zero points come on top of the codes.", 16.0: "That is the cache in 16 bits."}, chapter=2,
    ),
    Choice(
        "Two requests share the pages of a prefix, and pages hold codes. Why must the codes not depend on how the prompt was cut into steps?",
        [
            Option("A page that was coded for one request is read by another, whose prompt may have been cut differently.", "A page is found by its tokens. If its numbers also depended on the steps, the second answer would depend on who came first.", True),
            Option("Because a page can be coded only once.", "It is coded once; the question is whether it would be the same page."),
            Option("Because scales would need more bits.", "Their size has nothing to do with the steps."),
        ],
        chapter=5,
    ),
    Number(
        "How many more users of 8,192 tokens fit beside Llama-3-8B on a GPU with 20 GiB left for caches, if 16 bits become 5 bits a number?",
        int(20 * GiB // (8192 * kv_bytes_per_token(LLAMA) * 5 // 16)) - int(20 * GiB // (8192 * kv_bytes_per_token(LLAMA))), "users",
        "A user takes 1 GiB in 16 bits and 5/16 GiB in 5 bits: 64 fit instead of 20.", by_hand=64 - 20,
        slips={64: "That many fit in all; how many more?", 80 - 20: "5 bits are not 4: scales and zero points are stored too."}, chapter=2,
    ),
]  # fmt: skip
