from meganeura.ops import leaf as leaf
