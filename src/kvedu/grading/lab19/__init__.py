"""Lab 19's exercises."""

TITLE = "Quantized pages"
EXERCISES = ("page_bytes", "code_rows", "unpack_rows", "decode_codes", "where_is")
