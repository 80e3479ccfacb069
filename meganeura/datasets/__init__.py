"""Data sets, downloaded once with a checksum (https://keras.io/api/datasets)."""

from meganeura.datasets import boston_housing as boston_housing
from meganeura.datasets import california_housing as california_housing
from meganeura.datasets import cifar10 as cifar10
from meganeura.datasets import cifar100 as cifar100
from meganeura.datasets import fashion_mnist as fashion_mnist
from meganeura.datasets import imdb as imdb
from meganeura.datasets import mnist as mnist
from meganeura.datasets import reuters as reuters
from meganeura.datasets.idx import read_idx as read_idx
