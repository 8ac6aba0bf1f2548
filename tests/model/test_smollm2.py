"""The real model: SmolLM2 as kvedu loads it against transformers' own reading of the same file."""

import pytest
import torch
import transformers

import kvedu
from kvedu import ConcatCache, NoCache, Sampling, StaticCache, generate
from kvedu.fetch import model_path
from kvedu.kernels.packed_linear import packing_pays
from kvedu.texts import read

PROMPTS = [
    "The capital of France is",
    "def fibonacci(n):\n    ",
    "Once upon a time, in a village by the sea,",
    "Water boils at 100 degrees because",
    '{"name": "Ada", "born": 1815, "field":',
]


@pytest.fixture(scope="module")
def ours():
    return kvedu.load(dtype=torch.float32)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """transformers' dequantized GGUF model: an independent reader of names, permutation and quantization."""
    path = model_path()
    return transformers.AutoModelForCausalLM.from_pretrained(str(path.parent), gguf_file=path.name, dtype=torch.float32).eval()


def test_logits_equal_transformers(ours, theirs):
    """Must hold 1: within 1e-3 over 200 tokens of prose."""
    ids = ours.tokenizer.encode(read("prose"))[:200]
    cache = NoCache(ours.config)
    with torch.inference_mode():
        with cache.step({cache.add(): len(ids)}) as view:
            got = ours(torch.tensor(ids), view)
        wanted = theirs(torch.tensor([ids])).logits[0]
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-3)


def test_greedy_tokens_equal_transformers(ours, theirs):
    """Must hold 1: 64 greedy tokens on five prompts, token for token, in one ragged batch of ours."""
    prompts = [tuple(ours.tokenizer.encode(text)) for text in PROMPTS]
    got = generate(ours, prompts, max_new_tokens=64, ignore_eos=True)
    for prompt, completion in zip(prompts, got):
        with torch.inference_mode():
            wanted = theirs.generate(
                torch.tensor([prompt]), max_new_tokens=64, do_sample=False, pad_token_id=2, eos_token_id=-1,
                attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            )[0, len(prompt):]
        assert list(completion.token_ids) == wanted.tolist()


def test_cached_equals_uncached(ours):
    """Must hold 2 on the real model: every cache gives the tokens of the loop without one."""
    prompt = ours.tokenizer.encode(PROMPTS[2])
    wanted = generate(ours, prompt, max_new_tokens=24, cache=NoCache(ours.config)).token_ids
    for cache in (ConcatCache(ours.config), StaticCache(ours.config, max_length=64)):
        assert generate(ours, prompt, max_new_tokens=24, cache=cache).token_ids == wanted


def test_a_half_full_batch_in_bf16_speaks_english():
    """The fast path end to end: packed bf16, chat template, stop at EOS; Paris is in the answer."""
    model = kvedu.load(dtype=torch.bfloat16).pack()
    chats = [[{"role": "user", "content": "What is the capital of France? Answer in one sentence."}],
             [{"role": "user", "content": "Say hello."}]]
    answers = generate(model, chats, max_new_tokens=40, sampling=[Sampling(), Sampling(temperature=0.7, seed=1)])
    assert "Paris" in answers[0].text and "<|im_end|>" not in answers[0].text
    assert answers[1].text


def test_memory_held_while_decoding(ours):
    """Must hold 3: weights and cache as held, within 5 % of the formulas (a packed head is a second copy of a tied matrix)."""
    from kvedu.analysis.memory import kv_cache_bytes, weight_bytes

    cache = StaticCache(ours.config, max_sequences=2, max_length=512)
    config = ours.config
    assert cache.nbytes == kv_cache_bytes(config, 2 * 512, bytes_per_element=4)
    assert ours.nbytes == pytest.approx(weight_bytes(config, 4), rel=0.001)
    if packing_pays(torch.bfloat16):
        packed = kvedu.load(dtype=torch.bfloat16).pack()
        formula = weight_bytes(config, 2) + config.V * config.M * 2
        assert packed.nbytes == pytest.approx(formula, rel=0.05)
