"""Trees that any checkpoint library can store: every `MXArray` becomes a dictionary that carries its metadata."""

from collections.abc import Mapping
from typing import Any

import jax
import msgspec
import numpy as np

from jax_mx._compat import api_boundary
from jax_mx._mx_array import MXArray
from jax_mx.checkpoint._metadata import ArrayMetadata, describe, restore

_KEYS = frozenset({"mx_data", "mx_scale", "mx_metadata"})


@api_boundary
def pack_tree(tree: Any) -> Any:
    """Replaces every `MXArray` of a tree by a dictionary of three arrays: containers, scale bytes and metadata.

    A checkpoint library stores those like any other arrays, so the metadata is in the checkpoint and `unpack_tree`
    needs no template. (With a template, such a library can also store the tree as it is: an `MXArray` is a pytree.)

    Args:
        tree: any tree of arrays and `MXArray`s.

    Returns:
        The tree, its other leaves unchanged.
    """
    return jax.tree.map(
        lambda node: _pack(node) if isinstance(node, MXArray) else node, tree, is_leaf=lambda n: isinstance(n, MXArray)
    )


@api_boundary
def unpack_tree(tree: Any) -> Any:
    """Puts the `MXArray`s of a tree together again: the inverse of `pack_tree`.

    Args:
        tree: what `pack_tree` made, as a checkpoint library gave it back.

    Returns:
        The tree with its `MXArray`s.

    Raises:
        TypeError: a packed array's containers or scale bytes are of another dtype than its metadata says.
        ValueError: a packed array's metadata cannot be read, or does not fit its arrays.
    """
    return jax.tree.map(lambda node: _unpack(node) if _is_packed(node) else node, tree, is_leaf=_is_packed)


def _pack(array: MXArray) -> dict[str, Any]:
    encoded = np.frombuffer(msgspec.json.encode(describe(array)), np.uint8)
    return {"mx_data": array.data, "mx_scale": array.scale, "mx_metadata": encoded}


def _unpack(node: Mapping[str, Any]) -> MXArray:
    text = np.asarray(node["mx_metadata"]).astype(np.uint8).tobytes()
    try:
        metadata = msgspec.json.decode(text, type=ArrayMetadata)
    except msgspec.DecodeError as e:
        raise ValueError(f"mx_metadata: got {text!r}, want what pack_tree wrote: {e}") from None
    return restore(node["mx_data"], node["mx_scale"], metadata)


def _is_packed(node: Any) -> bool:
    return isinstance(node, Mapping) and set(node) == _KEYS
