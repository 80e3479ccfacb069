"""Where training data come from: arrays, generators, data sets."""

from meganeura.data.dataset import PyDataset as PyDataset
