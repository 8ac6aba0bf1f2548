"""The explorer's server is the one of ``kvedu.analysis.serving``, on a grid."""

import itertools

import pytest

from kvedu.analysis.hardware import hardware
from kvedu.analysis.known_models import known_model
from kvedu.analysis.memory import max_batch, weight_bytes
from kvedu.analysis.serving import server
from kvedu.viz import still, tradeoff
from kvedu.viz.configs import limits, sizes
from kvedu.viz.node import evaluate

GRID = list(itertools.product(("SmolLM2-135M", "Llama-3-8B", "Mistral-7B-v0.1"), ("L4", "H100-SXM"), (1, 500, 6000), (1, 151)))
RUNNING = (1, 7, 64, 1000)


def servers() -> list[dict]:
    return evaluate(
        "tradeoff",
        [("server", [sizes(m), limits(h)["flops"]["bf16"], limits(h)["bandwidth"], p, o]) for m, h, p, o in GRID],
    )


def test_the_server_is_the_librarys() -> None:
    for (model, machine, *lengths), found in zip(GRID, servers(), strict=True):
        wanted = server(known_model(model).config, hardware(machine), *lengths)
        for key in ("weights", "compute", "cache", "steps"):
            assert found[key] == pytest.approx(getattr(wanted, key), rel=1e-12), (model, machine, lengths, key)


def test_what_it_gives_and_takes() -> None:
    given = servers()
    calls = [(name, [s, r]) for s in given for r in RUNNING for name in ("stepTime", "throughput")]
    calls += [(name, [s]) for s in given for name in ("saturation", "knee")]
    found = iter(evaluate("tradeoff", calls))
    wanted = [server(known_model(m).config, hardware(h), *rest) for m, h, *rest in GRID]
    for one in wanted:
        for running in RUNNING:
            assert next(found) == pytest.approx(one.step(running), rel=1e-12)
            assert next(found) == pytest.approx(one.throughput(running), rel=1e-12)
    for one in wanted:
        assert [next(found), next(found)] == pytest.approx([one.saturation, one.knee], rel=1e-12)


def test_most_within_a_limit_is_the_edge() -> None:
    """One more would miss it, that many do not; 0 where one alone misses it."""
    cases = [(s, limit) for s in servers() for limit in (1e-4, 0.02, 0.05, 0.3)]
    for (s, limit), most in zip(cases, evaluate("tradeoff", [("within", list(case)) for case in cases]), strict=True):
        step = lambda n, s=s: max(s["weights"], n * s["compute"]) + n * s["cache"]  # noqa: E731
        assert most == 0 or step(most) <= limit * (1 + 1e-9)
        assert step(most + 1) > limit * (1 - 1e-9)


def test_what_fits_is_the_librarys() -> None:
    for name, machine in itertools.product(("Llama-3-8B", "Qwen2.5-72B"), ("L4", "A100-80GB-SXM", "H200-SXM")):
        config, memory = known_model(name).config, hardware(machine).memory
        room = memory - weight_bytes(config, 2)
        wanted = max_batch(room, config, 768) if room > 0 else 0
        assert evaluate("tradeoff", [("fit", [sizes(name), memory, 512, 256])]) == [wanted]


@pytest.mark.parametrize(
    ("state", "sign"),
    [
        ({}, "Within the limit"),
        ({"running": 256, "slo": 10}, "The limit is missed"),
        ({"running": 1024, "prompt": 8192}, "Out of memory"),
        ({"model": "Qwen2.5-72B", "machine": "L4"}, "Out of memory: Qwen2.5-72B with one"),
        ({"slo": 5}, "Even one alone"),
    ],
)
def test_failure_states(state: dict, sign: str) -> None:
    assert sign in still("tradeoff", tradeoff.data(), state).say


def test_the_question_is_answered_by_the_library() -> None:
    chat = server(known_model("Llama-3-8B").config, hardware("A100-80GB-SXM"), 512, 256)
    predict = tradeoff.data()["predict"]
    grown = 100 * (chat.step(8) / chat.step(1) - 1)
    assert f"{grown:.0f} %" in predict["choices"][predict["answer"]] and grown < 25
