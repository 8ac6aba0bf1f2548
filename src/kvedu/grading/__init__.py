"""Checks that teach: exercises as data, a learner's answer put to work, and a verdict in plain words."""
