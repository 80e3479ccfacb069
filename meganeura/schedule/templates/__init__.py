"""Kernel templates: products, convolution, pooling, scatter, running sums."""


def load() -> None:
    """Import the templates, which register themselves."""
    from meganeura.schedule.templates import convolution, matmul, pooling, rows

    assert all((convolution, matmul, pooling, rows))
