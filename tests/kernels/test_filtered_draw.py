"""Top-k, top-p and min-p without a sort: the kernel draws what the ranking draws, and halves its way there."""

import math

import pytest
import torch
from scenes import DEVICE, hollow

from kvedu.kernels.filtered_draw import BITS, cost, filtered_draw, filtered_draw_reference, passes
from kvedu.kernels.launch import KernelError, interpreted, missing, runs_on
from kvedu.kernels.watch import watching

needs_triton = pytest.mark.skipif(not runs_on(torch.device(DEVICE)), reason=f"no Triton: {missing()} (no GPU needed)")
REAL = DEVICE != "cpu"
F64 = torch.float64


def settings(*rows):
    """Of (temperature, top_k, top_p, min_p, uniform)."""
    return torch.tensor(rows, dtype=F64, device=DEVICE)


def some_logits(R, V, dtype, levels, seed=0):
    """Random rows in memory full of NaN; ``levels`` makes ties, 0 none."""
    x = hollow((R, V), torch.float32, 2)
    x.copy_(torch.randn(R, V, generator=torch.Generator().manual_seed(seed)))
    if levels:
        x.copy_((x * levels).round() / levels)
    return x.to(DEVICE, dtype)


def some_settings(R, V, seed):
    """Every kind of filter with every other, at edges too."""
    generator = torch.Generator().manual_seed(seed)

    def one(*values):
        return values[int(torch.randint(len(values), (), generator=generator))]

    return settings(
        *((one(0, 1e-4, 0.3, 1, 4), one(0, -1, 1, 2, V - 1, V, V + 1), one(0, 0.25, 0.5, 2 / 3, 0.9, 1), one(0, 0, 0.5, 1),
           float(torch.rand((), generator=generator, dtype=F64))) for _ in range(R))
    )  # fmt: skip


@needs_triton
@pytest.mark.parametrize("dtype", BITS, ids=str)
@pytest.mark.parametrize("levels", [0, 1, 8])
@pytest.mark.parametrize("V, block", [(1, 4), (13, 4), (16, 16), (33, 16)])
def test_the_token_of_the_ranking(V, block, levels, dtype):
    """Ties of all sizes, rows that end inside a block, minus zero beside zero, minus infinity."""
    logits = some_logits(3, V, dtype, levels, seed=V + levels)
    if V > 4:
        logits[1, 2], logits[1, 3], logits[2, 4] = -0.0, 0.0, -math.inf
    asked = some_settings(3, V, seed=V * 10 + levels)
    assert torch.equal(filtered_draw(logits, asked, triton=True, block=block), filtered_draw_reference(logits, asked))


@needs_triton
def test_of_equal_ones_just_so_many():
    """The largest number draws the last token that is kept: of eight equal ones the k-th, or the first that fills the nucleus."""
    last, asked, wanted = 1 - 2**-40, [], []
    for n in range(1, 9):
        asked += [(1, n, 1, 0, last), (1, 0, n / 8, 0, last), (1, 0, (n - 0.5) / 8, 0, last), (1, n, 0.5, 0, last), (1, n, 1, 1, last)]
        wanted += [n - 1, n - 1, n - 1, (n + 1) // 2 - 1, n - 1]
    equal = torch.zeros(len(asked), 8, device=DEVICE)
    for triton in (True, False):
        assert filtered_draw(equal, settings(*asked), triton=triton, block=4).tolist() == wanted
    higher = torch.tensor([0.0, 2, 0, 2, 0, 2, 0, 0], device=DEVICE).expand(8, -1)  # three before the five, and where they stand
    ids = filtered_draw(higher, settings(*((1, n, 1, 0, last) for n in range(1, 9))), triton=True, block=4).tolist()
    assert ids == [1, 3, 5, 5, 5, 5, 6, 7]


@needs_triton
def test_real_rows():
    """A vocabulary of 152 thousand on a GPU, of some hundred in the interpreter, by the block that the rule gives."""
    R, V = (64, 151_936) if REAL else (3, 300)
    logits, asked = some_logits(R, V, torch.bfloat16 if REAL else torch.float16, 0), some_settings(R, V, seed=5)
    assert torch.equal(filtered_draw(logits, asked, triton=True), filtered_draw_reference(logits, asked))


@needs_triton
def test_a_broken_row_is_none_and_breaks_no_other():
    """C046: NaN, infinity, or nothing finite at all."""
    logits = torch.zeros(6, 5, device=DEVICE)
    logits[1, 2], logits[2, 0], logits[3], logits[4, 4] = math.nan, math.inf, -math.inf, -math.inf
    asked = settings(*[(1, 0, 0.5, 0, 0.3)] * 6)
    got = filtered_draw(logits, asked, triton=True, block=4)
    assert torch.equal(got, filtered_draw_reference(logits, asked)) and got.tolist() == [0, -1, -1, -1, 0, 0]


@pytest.mark.parametrize("kind", [(1, 0, 1, 0), (0.5, 7, 1, 0), (2, 0, 0.6, 0), (1, 0, 1, 0.4), (1, 9, 0.8, 0.1)])
def test_each_token_as_often_as_its_probability(kind):
    """The definition at 4,000 numbers side by side: a token's share of them is its probability, and what is filtered out has none."""
    from kvedu.model.sampling import Sampling, distribution

    row, n = torch.randn(20, generator=torch.Generator().manual_seed(1)), 4000
    asked = torch.tensor([(*kind, (i + 0.5) / n) for i in range(n)], dtype=F64)
    share = torch.bincount(filtered_draw(row.expand(n, -1), asked, triton=False), minlength=20) / n
    wanted = distribution(row, Sampling(temperature=kind[0], top_k=kind[1], top_p=kind[2], min_p=kind[3]))
    assert (share - wanted).abs().max() <= 1 / n and bool(((share > 0) <= (wanted > 0)).all())


@pytest.mark.skipif(not interpreted(), reason="loads are counted in Triton's interpreter (no GPU needed)")
@pytest.mark.parametrize("top_k, top_p, min_p", [(0, 1, 0), (3, 1, 0), (0, 0.5, 0), (0, 1, 0.5), (3, 0.5, 0), (3, 0.5, 0.5)])
def test_it_reads_no_more_than_the_formula_says(top_k, top_p, min_p):
    """Whole rows, in integer times; and where no filter is, three times just so. Rows about zero have the most numbers between their logits."""
    for logits in (torch.randn(1, 40).half(), torch.randn(1, 40).half() * 1e-6, torch.full((1, 40), 2.0).half()):
        with watching(logits=logits) as seen:
            filtered_draw(logits, settings((1, top_k, top_p, min_p, 0.5)), triton=True, block=16)
        reads, odd = divmod(sum(len(access.places) for access in seen.of("logits")), 40)
        most = passes(torch.float16, top_k > 0, top_p < 1, min_p > 0)
        assert odd == 0 and 3 <= reads <= most and (reads == most) == (most == 3)
    assert cost(1, 40).read == 80


@pytest.mark.skipif(not interpreted(), reason="loads are counted in Triton's interpreter (no GPU needed)")
@pytest.mark.parametrize("dtype, sums", [(torch.bfloat16, 14), (torch.float32, 30)])
def test_a_search_takes_few_sums(dtype, sums):
    """Of a row as models give them: a dozen for bf16, twice as many for fp32, beside the reads that every row takes."""
    logits = (2 * torch.randn(1, 300, generator=torch.Generator().manual_seed(0)) - 2).to(dtype)
    for top_k, top_p in ((50, 1), (0, 0.9)):
        with watching(logits=logits) as seen:
            filtered_draw(logits, settings((1, top_k, top_p, 0, 0.5)), triton=True)
        reads = sum(len(access.places) for access in seen.of("logits")) // 300
        assert sums / 2 <= reads - 4 - (top_p < 1) <= sums


@needs_triton
def test_what_does_not_fit_is_refused():
    logits = torch.zeros(2, 5, device=DEVICE)
    for asked in (settings((1, 0, 1, 0, 0)), settings((1, 0, 1, 0, 0), (1, 0, 1, 0, 0)).float(), settings((1, 0), (1, 0))):
        with pytest.raises(KernelError, match="want .R, V. in one of .* and .R, 5. in torch.float64"):
            filtered_draw(logits, asked, triton=True)
    with pytest.raises(KernelError, match="do not fit"):
        filtered_draw(logits.long(), settings((1, 0, 1, 0, 0), (1, 0, 1, 0, 0)), triton=True)
    with pytest.raises(KernelError, match="do not fit"):
        filtered_draw(logits[None], settings((1, 0, 1, 0, 0)), triton=True)
