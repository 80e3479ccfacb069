"""Pictures and arrays."""

from meganeura.utils.images import array_to_img as array_to_img
from meganeura.utils.images import img_to_array as img_to_array
from meganeura.utils.images import load_img as load_img
from meganeura.utils.images import save_img as save_img
