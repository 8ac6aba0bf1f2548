"""Numbers before code: bytes, FLOPs, roofline and time of a model, with the standard library only.

``shape`` (what attention stores) and ``quantized`` (how few bits it can take) feed
``memory``; ``weights`` counts parameters and activations; ``flops`` counts the work of
one step; ``roofline`` says what bounds it on a ``hardware`` row; ``cost`` adds steps up
to seconds; ``speculation`` weighs guesses against what they cost. ``known_models`` holds
published configurations to check all of it with.
"""
