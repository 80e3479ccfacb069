"""meganeura: neural networks on any GPU, in Keras's words."""
