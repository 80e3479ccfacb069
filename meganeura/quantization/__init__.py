"""Weights in blocks of few bits: formats, variables that lie packed on the device, and whole models."""
