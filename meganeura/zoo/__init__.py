"""The zoo: models written with the public API, which load the weights that people have."""
