"""With the native kernels the engine's promise holds in bf16 too: the company a request keeps changes no bit."""

import pytest
import torch
from tiny import random_ids, tiny_config, tiny_model

from kvedu.caches.prefix_hash import HashReuse
from kvedu.engine.engine import Engine
from kvedu.kernels.panel_linear import panels_pay
from kvedu.model.generate import generate

pytestmark = pytest.mark.skipif(
    not panels_pay(torch.bfloat16), reason="the native CPU kernels do not run here (no GPU needed)"
)


@pytest.mark.parametrize("page_size, budget", [(1, 7), (16, 16), (16, 200), (64, 33)])
def test_bf16_output_equals_generate_alone(page_size, budget):
    """Logprobs to the last bit: prompts cut into chunks, mixed with decodes, found in the prefix cache, or alone."""
    model = tiny_model(tiny_config(H=6, K=2, D=16)).to(torch.bfloat16).pack()
    shared = random_ids(70, seed=9)
    prompts = [shared[: 60 + i] + random_ids(3 + 7 * i, seed=i) for i in range(6)]
    alone = [generate(model, p, max_new_tokens=12, ignore_eos=True) for p in prompts]
    engine = Engine(model, cache_bytes=2**21, page_size=page_size, reuse=HashReuse, token_budget=budget, max_running=4)
    numbers = [engine.add(p, max_new_tokens=12, ignore_eos=True) for p in prompts]
    while not engine.idle:
        engine.step()
    for number, want in zip(numbers, alone):
        (got,) = engine.results(number)
        assert got.token_ids == want.token_ids


def test_bf16_logits_of_a_prompt_do_not_depend_on_its_chunks():
    from kvedu.caches.paged import PagedCache

    model = tiny_model(tiny_config(H=6, K=2, D=16)).to(torch.bfloat16).pack()
    ids = torch.tensor(random_ids(130))

    def logits(chunk, page_size):
        cache = PagedCache(model.config, n_pages=200, page_size=page_size, dtype=torch.bfloat16)
        seq, outs = cache.add(), []
        with torch.inference_mode():
            for part in ids.split(chunk):
                with cache.step({seq: len(part)}) as view:
                    outs.append(model(part, view))
        return torch.cat(outs)

    whole = logits(130, 16)
    for chunk, page_size in ((1, 16), (7, 1), (64, 64), (100, 4)):
        assert torch.equal(logits(chunk, page_size), whole)
