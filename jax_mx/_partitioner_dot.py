"""How XLA's SPMD partitioner splits a `__op$block_scaled_dot` call: as any product, by whole blocks.

Batch and free dimensions are multiplied where they lie. If both sides have the contracting dimension sharded alike,
every shard multiplies its own blocks and the float32 sums are added up over the shards, then rounded once. Otherwise
the result's sharding decides, and what it needs is gathered as narrow codes. See `_partitioner` for when XLA asks.
"""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from jax_mx._compat import REPLICATED, from_tiles, register_partitioner, tile_coordinates, tiles
from jax_mx._dot_dims import DotDims
from jax_mx._formats import BLOCK_SIZE, LANES
from jax_mx._lowering_mode import SCALED_DOT_TARGET
from jax_mx._partitioner import read_config
from jax_mx._scaled_matmul_lowering import CONFIG_KEY

_MLIR_TYPES = {"uint32": "ui32", "uint8": "ui8", "float8_e8m0fnu": "f8E8M0FNU", "float32": "f32", "bfloat16": "bf16"}


def _partition(
    operands: list[Any], shardings: list[Any], result: Any, result_sharding: Any, backend_config: bytes
) -> tuple[bytes, list[Any], Any]:
    """The module of one shard, and the shardings of the operands and of the result."""
    if result_sharding.is_manual():
        return _shard_module(operands, result, backend_config, []), shardings, result_sharding
    dims = _dims(backend_config, [operand.rank() for operand in operands[:2]])
    lhs, rhs = shardings[:2]
    groups = _groups_to_sum(dims, operands[0].dimensions(), lhs, rhs, result_sharding)
    if not groups:
        lhs, rhs = (_side(dims, side, result_sharding, operands[side].rank()) for side in (0, 1))
    needed = [lhs, rhs, lhs, rhs]
    shards = [sharding.tile(operand) for sharding, operand in zip(needed, operands, strict=True)]
    return _shard_module(shards, result_sharding.tile(result), backend_config, groups), needed, result_sharding


def _dims(backend_config: bytes, ranks: Sequence[int]) -> DotDims:
    config = read_config(SCALED_DOT_TARGET, backend_config).get(CONFIG_KEY, {})

    def pair(kind: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return tuple(config.get(f"lhs_{kind}_dimensions", ())), tuple(config.get(f"rhs_{kind}_dimensions", ()))

    named = pair("contracting")
    # What is not configured is the last dimension.
    return DotDims((named[0] or (ranks[0] - 1,), named[1] or (ranks[1] - 1,)), pair("batch"))


def _side(dims: DotDims, side: int, result_sharding: Any, rank: int) -> Any:
    """The sharding of one side that the result's asks for, with the contracting dimension whole."""
    if result_sharding.is_replicated():
        return result_sharding
    devices, subgroups = tiles(result_sharding)
    result_rank = devices.ndim - len(subgroups)
    batch, free = dims.batch[side], dims.free(side, rank)
    first_free = len(batch) if side == 0 else result_rank - len(free)
    in_result = dict(
        zip((*batch, *free), (*range(len(batch)), *range(first_free, first_free + len(free))), strict=True)
    )
    others = [d for d in range(result_rank) if d not in in_result.values()]
    order = (*(in_result[d] for d in sorted(in_result)), *range(result_rank, devices.ndim), *others)
    whole = np.expand_dims(devices.transpose(order), dims.contracting[side][0])
    return from_tiles(whole, [*subgroups, *[REPLICATED] * len(others)])


def _groups_to_sum(
    dims: DotDims, lhs_shape: Sequence[int], lhs: Any, rhs: Any, result_sharding: Any
) -> list[list[int]]:
    """Devices whose products are added up, a list for each sum; none where the shardings do not go together."""
    places = [tile_coordinates(sharding) for sharding in (lhs, rhs)]
    if places[0] is None or places[1] is None or places[0].shape[0] != places[1].shape[0]:
        return []
    (lhs_axis,), (rhs_axis,) = dims.contracting
    pieces = int(places[0][:, lhs_axis].max()) + 1
    if pieces == 1 or lhs_shape[lhs_axis] % (pieces * BLOCK_SIZE // LANES) != 0:
        return []
    (lhs_batch, rhs_batch), kept = dims.batch, (dims.free(0, len(lhs_shape)), dims.free(1, places[1].shape[1]))
    expected = np.concatenate(
        [places[0][:, list(lhs_batch)], places[0][:, list(kept[0])], places[1][:, list(kept[1])]], axis=1
    )
    in_result = tile_coordinates(result_sharding)
    if in_result is None:
        in_result = np.zeros_like(expected) if result_sharding.is_replicated() else np.full_like(expected, -1)
    alike = (
        np.array_equal(places[0][:, lhs_axis], places[1][:, rhs_axis])
        and np.array_equal(places[0][:, list(lhs_batch)], places[1][:, list(rhs_batch)])
        and np.array_equal(expected, in_result)
    )
    if not alike:
        return []
    members: dict[tuple[int, ...], list[list[int]]] = {}
    for device, (place, piece) in enumerate(zip(expected.tolist(), places[0][:, lhs_axis].tolist(), strict=True)):
        members.setdefault(tuple(place), [[] for _ in range(pieces)])[piece].append(device)
    return [list(group) for of_place in members.values() for group in zip(*of_place, strict=True)]


def _shard_module(operands: Sequence[Any], result: Any, backend_config: bytes, groups: list[list[int]]) -> bytes:
    """A StableHLO module that is the call on one shard, its result summed over each group of devices."""
    names = ", ".join(f"%{index}" for index in range(len(operands)))
    arguments = ", ".join(f"%{index}: {_type(operand)}" for index, operand in enumerate(operands))
    types = ", ".join(map(_type, operands))
    layouts = ", ".join(_layout(operand.rank()) for operand in operands)
    config = json.dumps(backend_config.decode())
    wide = _type(result, "float32" if groups else None)
    lines = [
        f'%dot = stablehlo.custom_call @"{SCALED_DOT_TARGET}"({names}) {{api_version = 2 : i32, '
        f"backend_config = {config}, operand_layouts = [{layouts}], "
        f"result_layouts = [{_layout(result.rank())}]}} : ({types}) -> {wide}",
    ]
    if groups:
        lines += [
            '%sum = "stablehlo.all_reduce"(%dot) ({',
            "^bb0(%a: tensor<f32>, %b: tensor<f32>):",
            "  %c = stablehlo.add %a, %b : tensor<f32>",
            "  stablehlo.return %c : tensor<f32>",
            f"}}) {{replica_groups = dense<{groups}> : tensor<{len(groups)}x{len(groups[0])}xi64>, "
            "channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids} : "
            f"({wide}) -> {wide}",
            f"%out = stablehlo.convert %sum : ({wide}) -> {_type(result)}",
        ]
    lines.append(f"return {'%out' if groups else '%dot'} : {_type(result)}")
    body = "\n".join(lines)
    return f"func.func @main({arguments}) -> {_type(result)} {{\n{body}\n}}\n".encode()


def _type(shape: Any, dtype: str | None = None) -> str:
    dims = "".join(f"{length}x" for length in shape.dimensions())
    name = dtype or shape.numpy_dtype().name
    if name not in _MLIR_TYPES:
        raise ValueError(
            f"{SCALED_DOT_TARGET}: got an array of {name} in a module to be partitioned, want uint32 codes"
        )
    return f"tensor<{dims}{_MLIR_TYPES[name]}>"


def _layout(rank: int) -> str:
    return f"dense<{list(reversed(range(rank)))}> : tensor<{rank}xindex>"


# Not with plugins: the compiler for GPUs has its own way with this call, on operands of its own types.
register_partitioner(SCALED_DOT_TARGET, _partition, plugins=False)
