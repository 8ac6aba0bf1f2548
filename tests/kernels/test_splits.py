"""Splits by rule: how many, which keys are whose, and where the programs of a launch run."""

import pytest
import torch
from scenes import DEVICE, make_scene

from kvedu.kernels.launch import Chip, missing, runs_on
from kvedu.kernels.schedule import merge_bytes, program_bytes, resident, schedule
from kvedu.kernels.splits import blocks_for, buffers_of, keys_of_splits, needed, shared_bytes, splits_for, splits_in_rounds


@pytest.mark.parametrize("keys", [1, 16, 17, 63, 64, 200])
@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_every_key_is_in_one_split(keys, n):
    found = keys_of_splits(keys, n, 16)
    assert sum(found) == keys and len(found) == n
    *before, last = [k for k in found if k]
    assert found == [*before, last, *[0] * (n - len(before) - 1)], "empty ones come last"
    assert all(k == found[0] and k % 16 == 0 for k in before) and last <= max(found)


@pytest.mark.skipif(not runs_on(torch.device(DEVICE)), reason=f"no Triton: {missing()} (no GPU needed)")
@pytest.mark.parametrize("n", [3, 4, 8])
def test_the_kernel_leaves_empty_what_the_rule_calls_empty(n):
    """A split without a key has log-sum -inf, and no other has."""
    from kvedu.kernels.paged_attention_triton import plan_attention

    lengths = [70, 16, 1, 33]
    scene = make_scene([(1, length - 1) for length in lengths], 6, 2, 16, 16, dtype=torch.float32)
    parts = torch.empty(4, 6, n, 16, device=DEVICE), torch.empty(4, 6, n, device=DEVICE)
    out = torch.empty_like(scene.q)
    plan_attention(
        scene.q, scene.k, scene.v, scene.layout.tables, scene.layout.rows, out, chip=Chip(), block_m=16, block_s=16, splits=n, parts=parts
    )[0].run()  # fmt: skip
    found = parts[1].isneginf().cpu()
    wanted = torch.tensor([[k == 0 for k in keys_of_splits(length, n, 16)] for length in lengths])
    assert torch.equal(found, wanted[:, None].expand_as(found))


def test_blocks_leave_room_for_the_weights_between_the_products():
    """Heads of 192 and 256 on a chip with 99 KiB: tiles of 64 x 64 took 104. Chips of 12.0 multiply as those of 8.x do."""
    for capability in (80, 86, 89, 90, 100, 120):
        chip = Chip.known(capability)
        for D in (64, 128, 192, 256):
            for rows in (4, 4096):
                rule = blocks_for(chip, rows, 4, D, 2)
                assert needed(D, 2, rule["block_m"], rule["block_s"], buffers_of(chip, rule["stages"], rule["block_m"])) <= chip.shared
            assert capability != 120 or blocks_for(chip, 4096, 4, D, 2) == blocks_for(Chip.known(86), 4096, 4, D, 2)


def test_few_programs_are_split_and_many_are_not():
    chip = Chip.known(90)
    assert splits_for(chip, 4 * chip.processors, 10**6, 64) == splits_for(chip, 3 * chip.processors, 10**6, 64) == 1
    assert splits_for(chip, 2 * chip.processors, 10**6, 64) == 2 and splits_for(chip, chip.processors, 10**6, 64) == 4
    assert splits_for(chip, 150, 10**6, 64) == 4
    assert splits_for(chip, 1, 255, 64) == 1 and splits_for(chip, 1, 512, 64) == 2
    assert splits_for(chip, 1, 2**20, 64) == 128


@pytest.mark.parametrize("programs", [0, 1, 8, 50, 131, 132, 133, 263, 264, 265, 400, 527, 528, 5000])
@pytest.mark.parametrize("keys", [1, 700, 4096, 5000, 32_768])
def test_no_split_is_empty_and_rounds_are_filled(programs, keys):
    """Of both rules; that of rounds against a search of all that it may choose from."""
    chip = Chip.known(90)
    for rule in (splits_for(chip, programs, keys, 64), splits_in_rounds(chip, programs, keys, 64, 2)):
        assert all(keys_of_splits(keys, rule, 64)) and (rule == 1 or keys // rule >= 128)
    fill = {n: programs * n / (264 * -(-programs * n // 264)) for n in range(1, keys // 256 + 1) if programs and all(keys_of_splits(keys, n, 64))}
    full = [n for n, share in fill.items() if share >= 0.9]
    if programs < 528 and fill:
        assert rule == (full[0] if full else max(fill, key=fill.get))
    else:
        assert rule == 1


def test_no_keys_are_one_split():
    for programs in (0, 1, 1000):
        assert splits_for(Chip.known(90), programs, 0, 64) == splits_in_rounds(Chip.known(90), programs, 0, 64, 2) == 1


def test_every_program_runs_once_and_the_least_busy_takes_the_next():
    placed = schedule([1000, 64, 1], 2, 3, 64, 5, 4, 128, 2)
    assert len({(p.head, p.sequence, p.split) for p in placed}) == len(placed) == 2 * 3 * 3
    busy, counts = [0] * 5, [0] * 5
    for p in placed:
        assert busy[p.processor] == min(busy) and p.place == counts[p.processor]
        busy[p.processor] += program_bytes(p.keys, 4, 128, 2, True)
        counts[p.processor] += 1
    assert [p.keys for p in placed if p.sequence == 0 and p.head == 0] == keys_of_splits(1000, 3, 64)


def test_what_a_multiprocessor_holds():
    """By hand for an H100 and heads of 128: two buffers of 64 keys and values, and 16 rows of queries."""
    chip = Chip.known(90)
    rule = blocks_for(chip, 4, 4, 128, 2)
    held = 2 * (16 * 128 + 2 * 64 * 256)
    assert rule["stages"] == 5 and buffers_of(chip, 5, 16) == buffers_of(chip, 3, 16, tables=False) == 2 and buffers_of(chip, 4, 16) == 1
    assert shared_bytes(128, 128, 2, 16, 64, 2) == held
    assert resident(chip, 4, 128, 2) == (227 + 1) * 1024 // (held + 1024) == 3


def test_bytes_are_those_of_the_costs():
    """Of a whole step: the formula of attention, and with splits that of the merge."""
    from kvedu.kernels import attention, softmax

    one = attention.cost(1, 299, 8, 2, 64)
    assert 2 * program_bytes(300, 4, 64, 2, False) == one.bytes
    merged = softmax.merge_cost(1, 8, 3, 64)
    assert 8 * merge_bytes(3, 3, 64, 2) == merged.bytes
