"""kvedu: the KV cache and LLM inference, built to be read and run."""
