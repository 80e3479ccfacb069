"""Kernel templates: products, convolution, pooling, scatter, running sums."""


def load() -> None:
    """Import the templates, which register themselves."""
    from meganeura.schedule.templates import attend, convolution, matmul, pooling, rows

    assert all((attend, convolution, matmul, pooling, rows))
