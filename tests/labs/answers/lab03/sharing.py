# %% right: with ifs
def sharing(published):
    heads = published["num_attention_heads"]
    kv_heads = published.get("num_key_value_heads")
    if kv_heads is None:
        kv_heads = heads
    size = published.get("head_dim")
    if size is None:
        size = published["hidden_size"] // heads
    kind = {heads: "MHA", 1: "MQA"}.get(kv_heads, "GQA")
    return kind, published["num_hidden_layers"] * kv_heads * size * 2 * 2


# %% right: by the library
def sharing(published):
    from kvedu.analysis.shape import AttentionShape

    H = published["num_attention_heads"]
    K, D = published.get("num_key_value_heads") or H, published.get("head_dim") or published["hidden_size"] // H
    shape = AttentionShape(published["num_hidden_layers"], H, K, D)
    return shape.kind, 2 * shape.elements * shape.n_layers


# %% wrong: a missing number is 1
# says: is taken for 1
def sharing(published):
    H = published["num_attention_heads"]
    K, D = published.get("num_key_value_heads") or 1, published.get("head_dim") or published["hidden_size"] // H
    return "MHA" if K == H else "MQA" if K == 1 else "GQA", 4 * published["num_hidden_layers"] * K * D


# %% wrong: a null is not seen
# says: a key that says null is not handled
def sharing(published):
    H = published["num_attention_heads"]
    K, D = published.get("num_key_value_heads", H), published.get("head_dim") or published["hidden_size"] // H
    return "MHA" if K == H else "MQA" if K == 1 else "GQA", 4 * published["num_hidden_layers"] * K * D


# %% wrong: a missing key raises
# says: older models do not have the key
def sharing(published):
    H = published["num_attention_heads"]
    K, D = published["num_key_value_heads"] or H, published.get("head_dim") or published["hidden_size"] // H
    return "MHA" if K == H else "MQA" if K == 1 else "GQA", 4 * published["num_hidden_layers"] * K * D


# %% wrong: C035, the head size as a quotient
# says: taken for width / heads
def sharing(published):
    H = published["num_attention_heads"]
    K, D = published.get("num_key_value_heads") or H, published["hidden_size"] // H
    return "MHA" if K == H else "MQA" if K == 1 else "GQA", 4 * published["num_hidden_layers"] * K * D


# %% wrong: a missing head size raises
# says: a missing head_dim is not handled
def sharing(published):
    H = published["num_attention_heads"]
    K, D = published.get("num_key_value_heads") or H, published["head_dim"]
    return "MHA" if K == H else "MQA" if K == 1 else "GQA", 4 * published["num_hidden_layers"] * K * D


# %% wrong: keys alone
# says: the bytes are half
def sharing(published):
    H = published["num_attention_heads"]
    K, D = published.get("num_key_value_heads") or H, published.get("head_dim") or published["hidden_size"] // H
    return "MHA" if K == H else "MQA" if K == 1 else "GQA", 2 * published["num_hidden_layers"] * K * D


# %% wrong: C033, query heads
# says: query heads are counted
def sharing(published):
    H = published["num_attention_heads"]
    K, D = published.get("num_key_value_heads") or H, published.get("head_dim") or published["hidden_size"] // H
    return "MHA" if K == H else "MQA" if K == 1 else "GQA", 4 * published["num_hidden_layers"] * H * D


# %% wrong: no MQA
# says: it has a name of its own
def sharing(published):
    H = published["num_attention_heads"]
    K, D = published.get("num_key_value_heads") or H, published.get("head_dim") or published["hidden_size"] // H
    return "MHA" if K == H else "GQA", 4 * published["num_hidden_layers"] * K * D


# %% wrong: the bytes alone
# says: of another kind or shape
def sharing(published):
    H = published["num_attention_heads"]
    K, D = published.get("num_key_value_heads") or H, published.get("head_dim") or published["hidden_size"] // H
    return 4 * published["num_hidden_layers"] * K * D
