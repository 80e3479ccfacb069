"""What all tests share: they compute with NumPy unless MEGANEURA_BACKEND says otherwise.

So the tests without a device need none, and `MEGANEURA_BACKEND=wgpu pytest tests/models` runs the
others on the adapter. The tests in tests/device ask for an adapter themselves.
"""

import os

os.environ.setdefault("MEGANEURA_BACKEND", "numpy")
