"""Tiny random checkpoints, made with transformers and gguf as the real ones are: folders and files to load."""

import gguf
import numpy as np
import torch
import transformers

SIZES = dict(
    vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=64, bos_token_id=1, eos_token_id=2,
)


def make_llama(folder, *, shard=None, **overrides):
    """A Llama folder and the transformers model that it was saved from."""
    return _make(transformers.LlamaConfig, folder, shard, overrides)


def make_mistral(folder, *, shard=None, **overrides):
    """Mistral: sliding window of 8 tokens unless overridden."""
    return _make(transformers.MistralConfig, folder, shard, {"sliding_window": 8} | overrides)


def make_qwen2(folder, *, shard=None, **overrides):
    """Qwen2: biases on Q, K and V, here of size about 1 (C029)."""
    return _make(transformers.Qwen2Config, folder, shard, overrides)


def make_qwen3(folder, *, shard=None, **overrides):
    """Qwen3: norms on Q and K, head size 16 although width / heads is 8."""
    return _make(transformers.Qwen3Config, folder, shard, {"head_dim": 16} | overrides)


_LATENT = dict(
    num_key_value_heads=4, kv_lora_rank=12, q_lora_rank=10, qk_rope_head_dim=8, qk_nope_head_dim=6, v_head_dim=5,
    first_k_dense_replace=2, n_routed_experts=4, moe_intermediate_size=8,
)


def make_deepseek_v2(folder, *, shard=None, **overrides):
    """DeepSeek-V2 with dense layers only: latents of 12, queries through a latent of 10, RoPE pairs side by side."""
    return _make(transformers.DeepseekV2Config, folder, shard, _LATENT | overrides)


def make_deepseek_v3(folder, *, shard=None, **overrides):
    """DeepSeek-V3 with dense layers only; ``rope_interleave`` says how RoPE pairs lie."""
    return _make(transformers.DeepseekV3Config, folder, shard, _LATENT | overrides)


LATENT_MAKERS = {"deepseek_v2": make_deepseek_v2, "deepseek_v3": make_deepseek_v3}
MAKERS = {"llama": make_llama, "mistral": make_mistral, "qwen2": make_qwen2, "qwen3": make_qwen3}


def _make(config_class, folder, shard, overrides):
    config = config_class(**SIZES | overrides)
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.uniform_(0.5, 1.5)
            elif name.endswith("bias"):
                parameter.normal_(0, 1)
            else:
                parameter.normal_(0, 0.2)  # large enough that a wrong row shows in the logits
    model.save_pretrained(folder, **({} if shard is None else {"max_shard_size": shard}))
    return folder, model


_IN_LAYER = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}


def gguf_name(name):
    """A transformers parameter name as llama.cpp's converter writes it."""
    top = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
           "lm_head.weight": "output.weight"}
    if name in top:
        return top[name]
    layer, rest = name.removeprefix("model.layers.").split(".", 1)
    module, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{_IN_LAYER[module]}.{kind}"


def make_gguf(path, model, *, quantize=None, metadata=None, extra=None, leave_out=()):
    """Write a transformers model as GGUF, as llama.cpp's converter does (Llama's Q and K rows permuted).

    ``metadata`` adds or replaces keys, ``extra`` adds tensors, ``leave_out`` drops some by GGUF name.
    """
    config = model.config
    arch = {"mistral": "llama"}.get(config.model_type, config.model_type)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer = gguf.GGUFWriter(path, arch)
    keys = {
        "block_count": config.num_hidden_layers, "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size, "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads, "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": head_dim, "attention.value_length": head_dim, "rope.dimension_count": head_dim,
        "vocab_size": config.vocab_size,
    }
    for key, value in keys.items():
        writer.add_uint32(f"{arch}.{key}", value)
    writer.add_float32(f"{arch}.attention.layer_norm_rms_epsilon", config.rms_norm_eps)
    writer.add_float32(f"{arch}.rope.freq_base", config.rope_parameters["rope_theta"])
    writer.add_uint32("tokenizer.ggml.bos_token_id", 1)
    writer.add_uint32("tokenizer.ggml.eos_token_id", 2)
    for key, value in (metadata or {}).items():
        add = {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32, bool: writer.add_bool,
               list: writer.add_array}[type(value)]
        add(key, value)
    tied = config.tie_word_embeddings
    tensors = {gguf_name(n): p for n, p in model.named_parameters() if not (tied and n == "lm_head.weight")}
    for name, parameter in (tensors | (extra or {})).items():
        if name in leave_out:
            continue
        values = parameter.detach().to(torch.float32).numpy()
        if arch == "llama" and name.split(".")[-2] in ("attn_q", "attn_k"):
            values = _llama_cpp_permute(values, config.num_attention_heads, config.num_key_value_heads, name)
        if quantize is not None and values.ndim == 2 and values.shape[-1] % 32 == 0:
            writer.add_tensor(name, gguf.quants.quantize(values, quantize), raw_dtype=quantize)
        else:
            writer.add_tensor(name, np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _llama_cpp_permute(values, n_heads, n_kv_heads, name):
    """Row order of ``LlamaModel.permute`` in llama.cpp's convert_hf_to_gguf.py, element by element."""
    heads = n_heads if ".attn_q." in name else n_kv_heads
    head_dim = len(values) // heads
    order = []
    for head in range(heads):
        for pair in range(head_dim // 2):
            order += [head * head_dim + pair, head * head_dim + pair + head_dim // 2]
    return values[order]
