"""Speculative decoding: guess several tokens cheaply, check them all in one pass, keep what the model would have said."""
