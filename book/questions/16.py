"""Questions of chapter 16."""

from kvedu.analysis.flops import decode_cost, total
from kvedu.analysis.hardware import hardware
from kvedu.analysis.known_models import known_model
from kvedu.analysis.memory import kv_bytes_per_token
from kvedu.analysis.roofline import ridge_point
from kvedu.book.questions import Choice, Number, Option, Order

H100, H200 = hardware("H100-SXM"), hardware("H200-SXM")
QWEN = known_model("Qwen2.5-72B").shape
LLAMA = known_model("Llama-3-8B").config
STEP = total(decode_cost(LLAMA, 4096, 256))

QUESTIONS = [
    Number(
        "Qwen2.5-72B has 64 query heads and 8 KV heads. How many FLOPs come with each byte of the cache in a decode step, in bf16?",
        QWEN.n_heads / QWEN.n_kv_heads, "FLOPs per byte", "An element of a key or value is used once by each head of its group, for a multiplication and an addition: 2 G FLOPs for its 2 bytes.", by_hand=8,
        slips={64: "A KV head is read by its own group of query heads only.", 16: "Two FLOPs, but also two bytes.", 1: "That is multi-head attention."},
    ),
    Number(
        "The same model with its cache in fp8. FLOPs per byte?", 2 * QWEN.n_heads / QWEN.n_kv_heads, "FLOPs per byte",
        "The same FLOPs, half the bytes. It moves toward the ridge, and takes half the time.", by_hand=16, slips={8: "The bytes are halved.", 4: "Fewer bytes mean more FLOPs for each."},
    ),
    Number(
        "An H200 does 989 TFLOP/s in bf16 and reads 4.8 TB/s. What share of its arithmetic can decode attention with a group of 8 use at most?",
        round(100 * 8 / ridge_point(H200, "bf16"), 2), "%", "8 FLOPs per byte against a ridge of 206.", by_hand=100 * 8 * 4.8e12 / 989e12, tolerance=0.03,
        slips={round(100 * 8 / ridge_point(H100, "bf16"), 2): "That is the H100, with 3.35 TB/s."},
    ),
    Choice(
        f"Decode of Llama-3-8B at 4,096 tokens and 256 sequences has {STEP.intensity:.0f} FLOPs per byte. Your manager wants it over an H200's ridge by a larger batch. What do you say?",
        [
            Option("No batch gets there: each sequence brings its own cache, and the intensity of that does not grow.", "The step's intensity tends to a limit that the context sets. Fewer bytes a token would move the limit.", True),
            Option("Take a batch about four times as large.", "That would hold if only weights were read."),
            Option("It is over the ridge already, since matrices are.", "The matrices are. Time is spent where bytes are, and those are the caches."),
        ],
    ),
    Choice(
        "A benchmark of a decode kernel shows 7 TB/s on an H200. What has happened?",
        [
            Option("The tensors fit the second-level cache, and the loop reads them again and again.", "No kernel reads HBM faster than 4.8 TB/s. Clear the cache or change the tensors between calls.", True),
            Option("The kernel is compressed well by the compiler.", "A compiler does not make bytes fewer that must be read."),
            Option("It counts bytes written too.", "A decode step writes next to nothing."),
        ],
    ),
    Choice(
        "Kernel A shows 80% of the bandwidth, kernel B 50%. Both do the same decode attention with 8 query heads to a KV head. Which one do you take?",
        [
            Option("The one that takes less time: A may read every key once per query head.", "Share of bandwidth says how busy the bus is, not with what. Divide the fewest bytes that the result needs by the time.", True),
            Option("A: it is closer to the roof.", "It is if it moves the fewest bytes. If it reads keys eight times, it takes five times as long as B."),
            Option("B: it leaves room for other kernels.", "A kernel that is bound by memory is as fast as the bytes it uses well."),
        ],
    ),
    Order(
        "Order these by FLOPs per byte in bf16, smallest first.",
        ["decode attention of Llama-2-7B (32 heads, 32 KV heads)", "decode attention of Llama-3-8B (32 heads, 8 KV heads)", "the matrices of a decode step with 64 sequences", "the matrices of a prefill of 2,048 tokens"],
        "1, 4, 64 and 2,048: the group, the group, the tokens, the tokens.",
    ),
    Number(
        "A server decodes 64 sequences of 8,192 tokens with Llama-3-8B in bf16. How long does an H200 take, at least, to read their caches once?",
        round(1e3 * 64 * 8192 * kv_bytes_per_token(LLAMA) / H200.bandwidth, 3), "ms", "64 × 8,192 × 128 KiB over 4.8 TB/s.", by_hand=1e3 * 64 * 8192 * 131072 / 4.8e12, tolerance=0.02,
        slips={round(4e3 * 64 * 8192 * kv_bytes_per_token(LLAMA) / H200.bandwidth, 3): "The model has 8 KV heads, not 32."}, chapter=2,
    ),
    Choice(
        "Speculation checks 5 tokens of a sequence in one pass. What does that do to the intensity of attention?",
        [
            Option("About five times as many FLOPs for the same read of the cache.", "All five queries look at the same keys. It is the one batch that attention has a use for.", True),
            Option("Nothing, as with any batch.", "Other sequences bring other caches. These five tokens share one."),
            Option("It falls, since guesses may be rejected.", "Rejected guesses are wasted work, but the reads were shared all the same."),
        ],
        chapter=6,
    ),
]  # fmt: skip
