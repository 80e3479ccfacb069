"""Old names of functions of meganeura.utils (https://keras.io/api/data_loading)."""

from meganeura.preprocessing import image as image
from meganeura.preprocessing import sequence as sequence
from meganeura.utils import image_dataset_from_directory as image_dataset_from_directory
from meganeura.utils import timeseries_dataset_from_array as timeseries_dataset_from_array
