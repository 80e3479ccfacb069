"""`meganeura.optimizers` is `meganeura.optim`, under Keras's name."""

import sys

from meganeura import optim

sys.modules[__name__] = optim
sys.modules[__name__ + ".schedules"] = optim.schedules
