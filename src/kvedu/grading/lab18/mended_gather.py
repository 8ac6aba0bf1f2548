"""Lab 18, exercise 2: tokens out of pages, for every sequence and not for the first alone."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh
from kvedu.grading.kernel_run import Twin, empty, left, run_kernel
from kvedu.grading.lab18._paged import paged, tokens

BLOCK = 16


def right(k: Tensor, tables: Tensor, lengths: Tensor, out: Tensor, **rest: Any) -> None:
    """What the lab's ``gather_spec`` says."""
    for b, length in enumerate(lengths.tolist()):
        out[b, :length] = tokens(k[:, :, None], tables[b], length)[:, 0]


def first_table(k: Tensor, tables: Tensor, lengths: Tensor, out: Tensor, **rest: Any) -> None:
    """Everybody reads the first sequence's pages."""
    right(k, tables[:1].expand(len(lengths), -1), lengths, out)


def no_table(k: Tensor, tables: Tensor, lengths: Tensor, out: Tensor, C: int, **rest: Any) -> None:
    """Pages 0, 1, 2 … of the pool."""
    for b, length in enumerate(lengths.tolist()):
        out[b, :length] = k[: -(-length // C)].flatten(0, 1)[:length]


def only_full_pages(k: Tensor, tables: Tensor, lengths: Tensor, out: Tensor, C: int, **rest: Any) -> None:
    """The rest of a page that is not full is left out."""
    right(k, tables, lengths // C * C, out)


def past_the_end(k: Tensor, tables: Tensor, lengths: Tensor, out: Tensor, **rest: Any) -> None:
    """Rows that no token has are written, as zeros."""
    out.zero_()
    right(k, tables, lengths, out)


def cases(fresh: Fresh) -> list[Case]:
    """Lengths that end inside, at and just past a page; tables wider than they are used; pages smaller and larger than a tile."""
    made = []
    for lengths, C, D in (([16], 16, 16), ([40, 7, 33], 16, 32), ([5, 64, 23], 5, 16), ([fresh.integer(2, 30), fresh.integer(33, 60)], 32, 16)):
        scene = paged(fresh, lengths, 1, D, C)
        made.append(Case(f"lengths {', '.join(map(str, lengths))} in pages of {C}", (scene["k"][:, :, 0], scene["tables"], scene["lengths"])))
    return made


def observe(kernel: Any, k_PCD: Tensor, tables_BJ: Tensor, lengths_B: Tensor) -> dict[str, Any]:
    """Tiles of 16 tokens, enough for the longest sequence."""
    S = int(lengths_B.max())
    out_BSD = empty(len(lengths_B), S, k_PCD.shape[2])
    args = dict(
        k=k_PCD, tables=tables_BJ, lengths=lengths_B, out=out_BSD, k_p=k_PCD.stride(0), k_c=k_PCD.stride(1),
        table_b=tables_BJ.stride(0), J=tables_BJ.shape[1], out_b=out_BSD.stride(0), out_s=out_BSD.stride(1),
    )  # fmt: skip
    return run_kernel(kernel, (len(lengths_B), -(-S // BLOCK)), args, ("out",), dict(C=k_PCD.shape[1], D=k_PCD.shape[2], BLOCK=BLOCK))


EXERCISE = Exercise(
    title="Tokens out of pages",
    read="book/18-paged-decode-kernel",
    hint="Where does the table of sequence b begin? `tables` is a slice of something wider.",
    checked="four sets of one to three sequences: lengths that end inside and at a page, pages of 5 to 32 tokens, tables that are slices",
    cases=cases,
    observe=observe,
    compared=left,
    right=Twin(right),
    mistakes=(
        Mistake(Twin(first_table), "every sequence reads the first one's pages: add `b * table_b` to where the table begins"),
        Mistake(Twin(no_table), "the block table is not used: page number j of a sequence lies at page `tables[b, j]` of the pool"),
        Mistake(Twin(only_full_pages), "tokens of the last, partly filled page are left out"),
        Mistake(Twin(past_the_end), "places past a sequence's end are written; the store needs the mask, too"),
    ),
)
