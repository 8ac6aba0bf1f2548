"""Lab 3's exercises."""

TITLE = "MHA, MQA, GQA"
EXERCISES = ("sharing", "decode_attention", "merge_kv_heads", "shows", "hides")
