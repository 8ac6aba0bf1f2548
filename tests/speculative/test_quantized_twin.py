"""The target's own weights in 4 bits as its draft: near it, apart from it, and never heard in the text."""

import torch

from kvedu.model.generate import generate
from kvedu.speculative.draft_model import DraftModel
from kvedu.speculative.quantized_twin import quantized_twin
from kvedu.speculative.speculate import speculate
from tiny import random_ids, tiny_config, tiny_model


def test_it_is_the_model_with_rounded_weights():
    """Every linear map is rounded, nothing else is; the target's own tensors are shared or left alone."""
    model = tiny_model()
    before = {name: p.clone() for name, p in model.named_parameters()}
    twin = quantized_twin(model)
    assert twin.embed is model.embed and twin.layers[0].attn_norm.weight is model.layers[0].attn_norm.weight
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    rounded = tiny_model()
    with torch.no_grad():
        for layer, mine in zip(rounded.layers, twin.layers):
            for a, b in ((layer.attn.qkv, mine.attn.qkv), (layer.attn.out, mine.attn.out), (layer.mlp.gate_up, mine.mlp.gate_up), (layer.mlp.down, mine.mlp.down)):
                a.weight.copy_(b.packed.plain())
        rounded.head.weight.copy_(twin.head.packed.plain())
    prompt = random_ids(9)
    assert generate(twin, prompt, max_new_tokens=12).token_ids == generate(rounded, prompt, max_new_tokens=12).token_ids


def test_its_guesses_are_often_kept_and_the_text_is_the_targets():
    model = tiny_model(tiny_config(L=3), scale=0.15)
    for dtype in (torch.float32, torch.bfloat16):
        for target in (model.to(dtype), model.to(dtype).pack()):
            plain = generate(target, random_ids(8), max_new_tokens=30)
            done = speculate(target, random_ids(8), DraftModel(quantized_twin(target), 2), max_new_tokens=30)
            assert done.completion.token_ids == plain.token_ids
            assert done.tokens_per_round > 1.5
            target.unpack()
