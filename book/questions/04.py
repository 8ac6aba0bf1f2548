"""Questions of chapter 4."""

from kvedu.analysis.known_models import known_model
from kvedu.analysis.memory import kv_bytes_per_token
from kvedu.book.questions import Choice, Number, Option, Order
from kvedu.caches.block_tables import BlockTables
from kvedu.caches.blocks import BlockPool
from kvedu.units import GiB, MiB

SIZE, TOKENS, MEAN = 16, 100, 60
LLAMA = kv_bytes_per_token(known_model("Llama-2-7B").shape)
PAGE = SIZE * LLAMA


def pages(tokens: int, size: int = SIZE) -> int:
    """Pages of a sequence."""
    return BlockTables(BlockPool(1, size)).blocks_for(tokens)


def copies(forks: int) -> int:
    """Copies that are made when a half-full page is shared by a sequence and its forks, and all of them write."""
    tables = BlockTables(BlockPool(32, SIZE))
    tables.open(0)
    tables.reserve({0: (0, SIZE // 2)})
    for seq in range(1, forks + 1):
        tables.open(seq, 0)
    return len(tables.reserve({seq: (SIZE // 2, 1) for seq in range(forks + 1)}))


EMPTY = (SIZE - 1) / 2 / (MEAN + (SIZE - 1) / 2)

QUESTIONS = [
    Number(
        f"A sequence holds {TOKENS} tokens, in pages of {SIZE}. How many places of its pages are empty?",
        pages(TOKENS) * SIZE - TOKENS, "places", f"{pages(TOKENS)} pages have {pages(TOKENS) * SIZE} places.", by_hand=12,
        slips={
            TOKENS % SIZE: "That is how many tokens the last page holds.",
            7.5: "That is the average over many sequences. Here the length is known.",
        },
    ),
    Number(
        f"A server's conversations hold {MEAN} tokens on average, over their time. What share of the places in use is empty, with pages of {SIZE}?",
        100 * EMPTY, "%", f"7.5 of {MEAN} + 7.5. \"Under 4%\" is no property of paging, but of long conversations.", by_hand=100 * 7.5 / 67.5, tolerance=0.05,
        slips={12.5: f"That is 7.5 of {MEAN}; the empty places belong to those that are paid for.", 4: "That holds for sequences of 180 tokens and more."},
    ),
    Order(
        "Token 8 of a sequence, pages of 4. In which order do these happen?",
        [
            "Token 8 is sampled.",
            "Token 8 is appended to the list of known tokens, which now has 9.",
            "A page is taken: 8 tokens are cached, and 8 % 4 is 0.",
            "The key and the value of token 8 are written, to the first place of that page.",
            "Token 9 is sampled.",
        ],
        "The first two end a step, the other three are the next one.",
    ),
    Number(
        "Five sequences were forked from one whose last page is half full, so that six share it. All six write in the next step. How many copies of that page are made?",
        copies(5), "copies", "Each that leaves takes a copy and lowers the count of users. The last one is alone and writes in place.", by_hand=5,
        slips={6: "The last of them has the page for itself by then.", 0: "Then each would write over the others' tokens.", 1: "All six write something of their own into it."},
    ),
    Choice(
        "You look at `len(ids) % C == 1`, asked of the list of known tokens before a decode step. For which page size is it wrong?",
        [
            Option("For C = 1 only.", "No remainder of a division by 1 is 1, though every token needs a page. For all others it says the same as `cached % C == 0`.", True),
            Option("For every one: it should be `== 0`.", "That is what people propose. The list has one token more than the cache, the one that the step will write."),
            Option("For none.", "Try C = 1: the rule never asks for a page."),
        ],
    ),
    Choice(
        "Two users' answers are the same, word for word, though they asked different things. Which fault of a paged cache fits?",
        [
            Option("A page was given back twice.", "Then it is handed out twice, two tables name it, and each conversation reads what the other one wrote.", True),
            Option("Pages are taken one token late.", "That spoils a sequence's own keys. Nobody sees another's."),
            Option("The page size is too large.", "That wastes places and shares badly; answers stay right."),
        ],
    ),
    Number(
        f"Llama-2-7B keeps {LLAMA // 1024} KiB for each token in bf16. How many pages of {SIZE} tokens fit in 20 GiB?",
        20 * GiB // PAGE, "pages", f"A page is {PAGE / MiB:g} MiB.", by_hand=20 * 1024 / 8,
        slips={20 * GiB // LLAMA: "That many tokens fit. A page holds 16 of them."}, chapter=2,
    ),
    Choice(
        "Paging lets 16 sequences share a decode step instead of 4. Why does the step not take four times as long?",
        [
            Option("Much of a step is reading the weights, once for all.", "Only what belongs to each sequence grows: its arithmetic and its cache.", True),
            Option("Pages are read faster than a contiguous buffer.", "They are not, rather a little slower. Paging lets more in; it makes no step faster."),
            Option("The sequences share their pages.", "Only those that begin alike do, and a step reads a shared page for each of them."),
        ],
        chapter=1,
    ),
]  # fmt: skip
