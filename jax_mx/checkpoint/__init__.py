"""Quantized arrays in files: published checkpoints in, `MXArray`s out, and back.

`load` and `open_checkpoint` read safetensors files that hold MX weights in any of the ways in which they are published,
without changing a byte of code or scale. `convert` streams such a file into one of x4 containers, in the layout that is
asked for. `save_npz` and `load_npz` keep arrays with their metadata in numpy's own format; `pack_tree` and
`unpack_tree` make a tree that any checkpoint library can store, such as orbax.

safetensors files need the package safetensors: `pip install 'jax-mx[checkpoint]'`.
"""

from jax_mx.checkpoint._convert import Converted as Converted
from jax_mx.checkpoint._convert import convert as convert
from jax_mx.checkpoint._npz import load_npz as load_npz
from jax_mx.checkpoint._npz import save_npz as save_npz
from jax_mx.checkpoint._reader import Checkpoint as Checkpoint
from jax_mx.checkpoint._reader import load as load
from jax_mx.checkpoint._reader import open_checkpoint as open_checkpoint
from jax_mx.checkpoint._safetensors import CheckpointError as CheckpointError
from jax_mx.checkpoint._tiles import from_tiles as from_tiles
from jax_mx.checkpoint._tiles import to_tiles as to_tiles
from jax_mx.checkpoint._tree import pack_tree as pack_tree
from jax_mx.checkpoint._tree import unpack_tree as unpack_tree
