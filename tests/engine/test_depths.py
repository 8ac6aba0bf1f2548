"""How far to guess, by hand: likely guesses first, none where they cost more than they bring, and a try now and then."""

import doctest

import pytest

from engines import engine_of, run_out
from kvedu.engine import curve
from kvedu.engine.curve import Curve
from kvedu.engine.depths import Full, Measured, Wish
from kvedu.engine.guess_metrics import guessing
from kvedu.engine.guesses import Acceptance, Drafting, Guesses
from kvedu.speculative.ngram import NGram
from kvedu.speculative.proposer import Proposer
from kvedu.speculative.tree import TokenTree
from test_speculating import Told, texts_of
from test_speculative_laws import looping_model
from tiny import random_ids


def texts(*shares, proposer=None, limit=8):
    """A wish for each: a text whose guesses were kept at this share at every depth, of one proposer that guesses 8 deep."""
    drafting = Drafting(proposer or NGram(8), ())
    wishes = []
    for share in shares:
        acceptance = Acceptance(drafting.acceptance)
        acceptance.share = lambda place, share=share: share
        wishes.append(Wish(Guesses(drafting, len(wishes), None, acceptance), limit))
    return wishes


def test_free_rows_are_taken_and_dear_ones_are_not():
    assert Full().choose(texts(0.1, 0.9), 2, 2) == [8, 8]
    assert Measured(lambda rows: 1.0).choose(texts(0.1, 0.9), 2, 2) == [8, 8]
    assert Measured(lambda rows: rows).choose(texts(0.1, 0.9), 2, 2) == [0, 0]


def test_the_best_depth_of_one_text_by_hand():
    """a = 0.8, a row costs 0.25 of a step: 1.8 / 1.25, 2.44 / 1.5, 2.952 / 1.75 = 1.687, 3.36 / 2: three guesses."""
    assert Measured(lambda rows: 1 + 0.25 * (rows - 1)).choose(texts(0.8), 1, 1) == [3]
    assert Measured(lambda rows: 1 + 0.25 * (rows - 1)).choose(texts(0.8, limit=2), 1, 1) == [2]


def test_two_texts_share_what_is_free():
    """Four rows are free: two texts bring two, so the text that is guessed well gets both guesses, 0.81 > 0.3."""
    step = {rows: 1.0 if rows <= 4 else 10.0 for rows in range(100)}.__getitem__
    assert Measured(step).choose(texts(0.9, 0.3), 2, 2) == [2, 0]
    assert Measured(step).choose(texts(0.6, 0.6), 2, 2) == [1, 1]
    assert Measured(step).choose(texts(0.9, 0.9), 4, 4) == [0, 0], "a batch that fills the pass has no row to spare"


def test_drafting_takes_time():
    """Guesses that would pay as rows do not pay where making them takes as long as a step each."""
    slow = texts(0.8)
    for depth in (1, 2, 4, 8):
        slow[0].guesses.drafting.seconds.note(depth, 1.0 * depth)
    assert Measured(lambda rows: 1.0).choose(slow, 1, 1) == [0]
    for depth in (1, 2, 4, 8):
        for _ in range(9):
            slow[0].guesses.drafting.seconds.note(depth, 0.1 * depth)
    assert Measured(lambda rows: 1.0).choose(slow, 1, 1)[0] >= 4


def test_a_tree_is_weighed_by_its_nodes_and_a_window_taken_whole():
    class Whole(NGram):
        whole = True

    bushy = texts(0.8)
    bushy[0].guesses.drafting.nodes.note(1, 4)
    bushy[0].guesses.drafting.nodes.note(2, 20)
    cost = Measured(lambda rows: 1 + 0.1 * (rows - 1))
    assert cost.choose(bushy, 1, 1) == [1] and cost.choose(texts(0.8), 1, 1)[0] > 3
    assert cost.choose(texts(0.8, proposer=Whole(8)), 1, 1) == [8] and cost.choose(texts(0.3, proposer=Whole(8)), 1, 1) == [0]


def test_what_was_switched_off_is_tried_again():
    policy, (wish,) = Measured(lambda rows: rows, probe=3), texts(0.5)
    tried = []
    for _ in range(9):
        (depth,) = policy.choose([wish], 1, 1)
        wish.guesses.idle = 0 if depth else wish.guesses.idle + 1
        tried.append(depth)
    assert tried == [0, 0, 0, 1, 0, 0, 0, 1, 0]


def test_nothing_known_means_a_careful_first_try():
    """A step smaller than all before is run plainly; then with twice the rows of any before, and 8; one in 64 plainly again."""
    policy = Measured()
    assert policy.choose(texts(*[0.9] * 6), 6, 6) == [0] * 6
    policy.stepped(6, 0.01)
    assert sum(policy.choose(texts(*[0.9] * 6), 6, 6)) == 14
    assert policy.choose(texts(*[0.9] * 5), 5, 5) == [0] * 5
    for _ in range(62):
        policy.stepped(6, 0.01)
    assert policy.choose(texts(*[0.9] * 6), 6, 6) == [0] * 6


def test_acceptance_forgets_and_borrows():
    everybody = Acceptance()
    one, other = Acceptance(everybody), Acceptance(everybody)
    assert one.share(1) == one.share(5) == 0.7
    for _ in range(40):
        one.note(2, 1)
    assert one.share(1) > 0.95 and one.share(2) < 0.1
    assert other.share(1) > 0.9 and other.share(2) < 0.2, "what others' guesses were worth is expected of a new text"
    for _ in range(40):
        one.note(2, 0)
    assert one.share(1) < 0.2, "a text that has changed is seen to have"


def test_a_curve_is_level_where_noise_falls():
    noisy = Curve()
    for x, y in ((1, 10.0), (2, 30.0), (3, 11.0), (4, 12.0)):
        noisy.note(x, y)
    values = [noisy(x) for x in range(1, 9)]
    assert values == sorted(values) and noisy(1) == 10.0 and noisy(2) == noisy(4) == pytest.approx(53 / 3)
    for _ in range(9):
        noisy.note(2, 10.5)
    assert noisy(2) == 10.5 and noisy(500) > noisy(4)
    assert Curve()(3, unknown=7.0) == 7.0
    assert doctest.testmod(curve).failed == 0


class Ticking:
    """A clock that a step moves by its rows' cost and a draft by its own."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Half(Told):
    """All guesses right at every other place of the text, none at the rest."""

    def _guess(self, ask):
        self.right = 99 * (len(ask.ids) % 2)
        return super()._guess(ask)


def serve(prompts, step, told=Told, n=24, **settings):
    """Serve them on a clock that a step of so many rows moves by ``step(rows)``; the guessing and the seconds."""
    model, clock = looping_model(), Ticking()
    engine = engine_of(model, pages=200, speculate=told(texts_of(model, prompts, n), 4, **settings), token_budget=200, clock=clock, max_running=16)
    run = engine.executor.run

    def timed(plan, *before):
        clock.now += step(sum(work.rows for work in plan.work))
        return run(plan, *before)

    engine.executor.run = timed
    for prompt in prompts:
        engine.add(prompt, max_new_tokens=n)
    run_out(engine)
    return guessing(engine.trace), clock.now


def test_the_engine_measures_and_decides():
    """Rows that are nearly free: 5 tokens a round. Rows that cost half a step each: the one right guess, no second. Wrong ones: soon none."""
    one = [random_ids(5)]
    good, seconds = serve(one, lambda rows: 1 + 0.01 * rows, n=61)
    assert good.tokens_per_round > 4 and seconds < 16
    first, seconds = serve(one, lambda rows: 0.5 + 0.5 * rows, right=1, n=61)
    assert first.by_depth[0] == 1 and first.guessed < 1.5 * first.accepted and seconds < 0.82 * (2.5 + 60)
    wrong, seconds = serve(one, lambda rows: 0.8 + 0.2 * rows, right=0, n=61)
    assert wrong.guessed < 25 and seconds < 1.1 * (1.8 + 60), "guesses that are never right stop, but for a try now and then"


def test_a_larger_batch_guesses_less():
    """Eight rows take as long as one, twelve longer: alone guesses that are right half the time pay, among twelve they do not."""
    def guesses_a_round(batch):
        found, _ = serve([random_ids(4, seed=i) for i in range(batch)], lambda rows: max(1.0, rows / 8), told=Half, n=40)
        return found.guessed / found.rounds

    assert guesses_a_round(1) > 2 > 0.7 > guesses_a_round(12)


class Costly(Proposer):
    """Right, but not cheap: every guess takes two steps to make."""

    deepest = 2

    def __init__(self, told, clock):
        self.told, self.clock = told, clock

    def propose(self, asks) -> list[TokenTree]:
        self.clock.now += 2.0 * max(ask.limit for ask in asks)
        return self.told.propose(asks)


def test_a_draft_that_costs_more_than_it_brings_is_switched_off():
    model, clock = looping_model(), Ticking()
    prompt = random_ids(5)
    engine = engine_of(model, pages=64, speculate=Costly(Told(texts_of(model, [prompt], 40), 2), clock), clock=clock)
    run = engine.executor.run
    engine.executor.run = lambda *step: (setattr(clock, "now", clock.now + 1.0), run(*step))[1]
    engine.add(prompt, max_new_tokens=40)
    run_out(engine)
    assert sum(r.guessed > 0 for r in engine.rounds(0)[0]) <= 6
