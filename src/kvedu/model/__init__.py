"""The model room: transformer, loaders, tokenizer, sampling and generation."""
