"""Questions of chapter 20."""

from kvedu.analysis.known_models import known_model
from kvedu.book.questions import Choice, Number, Option, Order
from kvedu.engine.graphs import LADDER
from kvedu.kernels import rmsnorm

RUNG = next(size for size in LADDER if size >= 70)
LLAMA = known_model("Llama-3-8B").config
ADD = rmsnorm.add_cost(4096, LLAMA.M)

QUESTIONS = [
    Choice(
        "A small model decodes for one user on a large GPU. A profile shows the device busy for 3% of the time. What helps most?",
        [
            Option("A faster attention kernel.", "Attention is a small part of the launches and of the bytes here. The device would only wait a little longer."),
            Option("Recording the step as a graph.", "The device waits for the host. One launch in place of hundreds takes that wait away.", True),
            Option("Weights in fewer bits.", "Fewer bytes shorten the 3%, not the 97%."),
            Option("A GPU with more bandwidth.", "It would be idle for more than 97% of the time."),
        ],
    ),
    Number(
        "A step has 300 launches of 4 µs each, and its kernels take 0.9 ms in all. With launching and computing side by side, how many ms does the step take at least?",
        max(300 * 4, 900) / 1000, "ms", "The host needs 300 × 4 µs = 1.2 ms to ask for all of them; the device is done soon after the last.",
        by_hand=300 * 4e-3, tolerance=0.01,
        slips={2.1: "That is the sum. The device computes while the host asks for the next kernels.", 0.9: "The device cannot start a kernel before it has been asked for."},
    ),
    Number(
        f"Recordings exist for {', '.join(map(str, LADDER))} rows. 70 sequences are running. How many rows of the replay are for nobody?",
        RUNG - 70, "rows", f"The next rung up is {RUNG}.", by_hand=96 - 70,
        slips={70 - 64: "A recording of 64 rows has no room for 70."},
    ),
    Choice(
        "A recorded step gives the same token again and again, though the host builds new ids for each. What is the likeliest reason?",
        [
            Option("The ids are in a new tensor; the recording reads the old one.", "Arguments are addresses. What changes must be copied to where the recording reads.", True),
            Option("The sampling seed is fixed.", "Then a text would be the same in every run. It would not be one token repeated."),
            Option("The graph must be recorded anew for each step.", "That would work, and would cost more than it saves. Copying a few numbers is enough."),
            Option("The KV cache is full.", "Then the engine would say so, or send somebody back to wait."),
        ],
    ),
    Choice(
        "Answers of one user change with the number of other users: right with 8 or 16 of them, sometimes wrong with 5. Which fault fits?",
        [
            Option("Idle rows of a recording write into that user's page.", "With 8 or 16 rows nothing fills up. With 5 the padding writes, wherever it was told to.", True),
            Option("Floating-point sums in another order.", "That would change a text now and then at any number of users, and rarely."),
            Option("Two requests got the same page.", "It would not depend on rungs of a ladder."),
        ],
    ),
    Order(
        "A recorded decode step on a GPU. Put the acts in order.",
        [
            "pages for the new tokens are found",
            "ids, positions, slots and tables are copied into the tensors that stay",
            "the recording is replayed",
            "a token is drawn from each row that belongs to somebody",
            "the host reads the ids",
        ],
        "Between the replay and the reading the host is free: it can plan the next step.",
    ),
    Number(
        "Add and RMSNorm on 4,096 rows of 4,096 numbers in bf16: how many MB must one kernel move at least? (1 MB is a million bytes.)",
        round(ADD.bytes / 1e6, 1), "MB", "Two tensors in, two out, and the weight once: 4 × 4,096 × 4,096 × 2 bytes.",
        by_hand=4 * 4096 * 4096 * 2 / 1e6, tolerance=0.01,
        slips={round(2 * 4096 * 4096 * 2 / 1e6, 1): "The sum is needed again by the next layer: it is written too, and two tensors are read.", round(3 * 4096 * 4096 * 2 / 1e6, 1): "Two are read and two are written: the norm and the sum."},
    ),
    Choice(
        "Why does a launch cost a batch of 64 no more than a batch of one?",
        [
            Option("A launch works on all rows.", "Its cost is shared by the batch, like the reading of the weights.", True),
            Option("Sixty-four rows are launched in parallel.", "They are one launch."),
            Option("It does cost more.", "The host asks for the same list of kernels, whatever the number of rows."),
        ],
        chapter=1,
    ),
    Choice(
        "A sequence is preempted between two recorded steps. What has to happen to the recordings?",
        [
            Option("They are made anew.", "Nothing in them knows who the rows are."),
            Option("Nothing: the next step copies in other rows.", "Tables, slots and positions are numbers in tensors that stay. Perhaps another rung is replayed.", True),
            Option("The pages must be given back inside the recording.", "Block ids never see a tensor. The scheduler gives them back on the host."),
        ],
        chapter=7,
    ),
]
