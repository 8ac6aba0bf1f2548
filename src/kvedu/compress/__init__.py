"""Rewrites of a plain model from outside, and what they cost in quality."""
