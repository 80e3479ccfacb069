"""Where training data come from: arrays, generators, data sets."""
