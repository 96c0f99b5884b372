"""Writes the fixtures of partitioned modules: sharding annotations as JAX makes them, and what the passes leave.

    python -m hlo_fixtures.sharded

The files lie in `sharded`, made as those of `generate.py` are. The meshes are abstract, so one device is enough.
"""

import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

import jax_mx
from hlo_fixtures import generate
from hlo_fixtures.programs import Program

ROOT = Path(__file__).resolve().parent
MESH = AbstractMesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto, AxisType.Auto))
DIRECTORY = "sharded"


def sharded(*spec: str | None) -> NamedSharding:
    """Returns the sharding over the mesh that a partition spec names."""
    return NamedSharding(MESH, PartitionSpec(*spec))


def array(shape: tuple[int, ...], *spec: str | None) -> jax.ShapeDtypeStruct:
    """Returns a bfloat16 argument with a sharding."""
    return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=sharded(*spec))


def product(x: jax.Array, w: jax.Array) -> jax.Array:
    """Multiplies x[M, K] by w[N, K], both quantized along K."""
    quantized = (*jax_mx.quantize_mx(x, "float8_e5m2"), *jax_mx.quantize_mx(w, "float8_e5m2"))
    return jax_mx.scaled_matmul_mx(*quantized, "float8_e5m2", out_dtype=jnp.bfloat16)


def tensor_parallel_mlp(x: jax.Array, up: jax.Array, down: jax.Array) -> jax.Array:
    """Two layers, the first sharded by columns, the second by rows, the examples over the other axis of the mesh."""
    hidden = jax.lax.with_sharding_constraint(jax.nn.relu(product(x, up)), sharded("data", "model"))
    return jax.lax.with_sharding_constraint(product(hidden, down), sharded("data", None))


def manual_shards(x: jax.Array) -> Any:
    """The same call written for one shard, in a shard_map."""
    spec = PartitionSpec("data", "model")
    return jax.shard_map(jax_mx.quantize_mx, mesh=MESH, in_specs=spec, out_specs=spec)(x)


def weight_rule(w: jax.Array) -> Any:
    """A scale rule other than the default, which a call that is still to be partitioned names twice."""
    return jax.lax.with_sharding_constraint(jax_mx.quantize_mx(w, rule=jax_mx.NKI), sharded(None, "model"))


_MLP = (array((16, 128), "data", None), array((256, 128), "model", None), array((128, 256), None, "model"))
SHARDED = (
    Program(
        name="tensor_parallel_mlp",
        directory=DIRECTORY,
        function=tensor_parallel_mlp,
        arguments=_MLP,
        form="stablehlo",
        checks=(
            'CHECK: sdy.mesh @mesh = <["data"=2, "model"=4]>',
            'CHECK: %arg0: tensor<16x128xbf16> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>}',
            'CHECK-SAME: %arg1: tensor<256x128xbf16> {sdy.sharding = #sdy.sharding<@mesh, [{"model"}, {}]>}',
            'CHECK-SAME: %arg2: tensor<128x256xbf16> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"model"}]>}',
            'CHECK: custom_call @QuantizeMX_bf16_e5m2({{.*}}) {backend_config = ""} :',
            'CHECK: custom_call @QuantizeMX_bf16_e5m2({{.*}}) {backend_config = ""} :',
            "CHECK: custom_call @ScaledMatmul_e5m2_e5m2_bf16(",
            'CHECK: sdy.sharding_constraint %{{.*}} <@mesh, [{"data"}, {"model"}]> : tensor<16x256xbf16>',
            "CHECK: custom_call @ScaledMatmul_e5m2_e5m2_bf16(",
            'CHECK: sdy.sharding_constraint %{{.*}} <@mesh, [{"data"}, {}]> : tensor<16x128xbf16>',
        ),
    ),
    Program(
        name="tensor_parallel_mlp_hlo",
        directory=DIRECTORY,
        function=tensor_parallel_mlp,
        arguments=_MLP,
        form="hlo",
        checks=(
            'CHECK: frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["data"=2, "model"=4]>}}',
            "CHECK-DAG: bf16[16,128]{1,0} parameter(0), sharding={devices=[2,1,4]<=[8] last_tile_dim_replicate}",
            "CHECK-DAG: bf16[256,128]{1,0} parameter(1), sharding={devices=[4,1,2]<=[2,4]T(1,0)",
            'CHECK-DAG: custom_call_target="Sharding", sharding={devices=[2,4]<=[8]}',
            'CHECK-DAG: custom_call_target="QuantizeMX_bf16_e5m2"',
            'CHECK-DAG: custom_call_target="ScaledMatmul_e5m2_e5m2_bf16"',
        ),
    ),
    Program(
        name="manual_shards",
        directory=DIRECTORY,
        function=manual_shards,
        arguments=(array((16, 256), "data", "model"),),
        form="stablehlo",
        checks=(
            "CHECK: sdy.manual_computation(%arg0)",
            'CHECK-SAME: in_shardings=[<@mesh, [{"data"}, {"model"}]>]',
            'CHECK-SAME: out_shardings=[<@mesh, [{"data"}, {"model"}]>, <@mesh, [{"data"}, {"model"}]>]',
            'CHECK-SAME: manual_axes={"data", "model"}',
            "CHECK: stablehlo.constant dense<[8, 64]>",
            "CHECK: custom_call @QuantizeMX_bf16_e4m3fn(",
            "CHECK: sdy.return",
        ),
    ),
    Program(
        name="weight_rule",
        directory=DIRECTORY,
        function=weight_rule,
        arguments=(array((16, 256), None, "model"),),
        form="hlo",
        checks=(
            'CHECK: custom_call_target="QuantizeMX_bf16_e4m3fn", frontend_attributes={mx_scale_rule="NKI"}',
            'CHECK: custom_call_target="Sharding", sharding={devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}',
        ),
    ),
)

TUPLE_HLO = """\
HloModule tuple_sharding

ENTRY main {
  x = bf16[16,256]{1,0} parameter(0), sharding={devices=[2,4]<=[8]}
  q = (u32[16,64]{1,0}, u8[16,8]{1,0}) custom-call(x), custom_call_target="QuantizeMX", \
sharding={{devices=[2,4]<=[8]}, {devices=[2,1,4]<=[8] last_tile_dim_replicate}}, \
backend_config={"block_size":32,"dim":1,"dtype":"float8_e5m2","scale_method":"EMAX"}
  data = u32[16,64]{1,0} get-tuple-element(q), index=0, sharding={devices=[2,4]<=[8]}
  scale = u8[16,8]{1,0} get-tuple-element(q), index=1, sharding={devices=[2,1,4]<=[8] last_tile_dim_replicate}
  ROOT out = (u32[16,64]{1,0}, u8[16,8]{1,0}) tuple(data, scale), \
sharding={{devices=[2,4]<=[8]}, {devices=[2,1,4]<=[8] last_tile_dim_replicate}}
}
"""
_TUPLE = "{{[{][{]}}devices=[2,4]<=[8]}, {devices=[2,1,4]<=[8] last_tile_dim_replicate}}"
TUPLE_HLO_CHECKS = (
    "// A call whose result is a tuple, one sharding for each element, as XLA's propagation leaves it.",
    "// CHECK: bf16[16,256]{1,0} parameter(0), sharding={devices=[2,4]<=[8]}",
    f'// CHECK: custom_call_target="QuantizeMX_bf16_e5m2", sharding={_TUPLE}',
    "// CHECK: get-tuple-element({{.*}}), index=0, sharding={devices=[2,4]<=[8]}",
    "// CHECK: get-tuple-element({{.*}}), index=1, sharding={devices=[2,1,4]<=[8] last_tile_dim_replicate}",
    f"// CHECK: ROOT {{{{.*}}}} tuple({{{{.*}}}}), sharding={_TUPLE}",
)

TUPLE_MLIR = """\
sdy.mesh @mesh = <["data"=2, "model"=4]>
func.func @main(%arg0: tensor<16x256xbf16>) -> (tensor<16x64xui32>, tensor<16x8xui8>) {
  %0:2 = stablehlo.custom_call @QuantizeMX(%arg0) {
    api_version = 2 : i32,
    backend_config = "{\\22block_size\\22:32,\\22dim\\22:1,\\22dtype\\22:\\22float8_e5m2\\22}",
    mhlo.sharding = "{{devices=[2,4]<=[8]}, {devices=[2,1,4]<=[8] last_tile_dim_replicate}}",
    sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"data"}, {"model"}]>, <@mesh, [{"data"}, {}]>]>,
    sdy.sharding_rule = #sdy.op_sharding_rule<([i, jkl])->([i, jk], [i, j]) {i=16, j=8, k=8, l=4}, custom>
  } : (tensor<16x256xbf16>) -> (tensor<16x64xui32>, tensor<16x8xui8>)
  return %0#0, %0#1 : tensor<16x64xui32>, tensor<16x8xui8>
}
"""
TUPLE_MLIR_CHECKS = (
    "// Two results with a sharding each, in both notations. The rule goes: Shardy knows no tuples, as metadata is.",
    '// CHECK: sdy.mesh @mesh = <["data"=2, "model"=4]>',
    "// CHECK: custom_call @QuantizeMX_bf16_e5m2(",
    f'// CHECK-SAME: mhlo.sharding = "{_TUPLE}"',
    "// CHECK-SAME: sdy.sharding = #sdy.sharding_per_value<"
    '[<@mesh, [{"data"}, {"model"}]>, <@mesh, [{"data"}, {}]>]>} :',
    "// CHECK-NOT: sharding_rule",
)


@functools.cache
def files() -> dict[Path, bytes]:
    """Returns every file to write, by path."""
    made = {}
    for program in SHARDED:
        text = generate.header(program) + generate.lower(program)
        path = ROOT / DIRECTORY / f"{program.name}{generate.suffix(program)}"
        made[path] = text.encode()
        made[path.with_suffix(f".legalized{path.suffix}")] = generate.legalize(text, program)
    for name, form, checks, text in (
        ("tuple_sharding.hlo", "hlo", TUPLE_HLO_CHECKS, TUPLE_HLO),
        ("tuple_sharding.mlir", "stablehlo", TUPLE_MLIR_CHECKS, TUPLE_MLIR),
    ):
        run = f"// RUN: mx-opt %s --passes={generate.PASSES} --emit={form}"
        made[ROOT / DIRECTORY / name] = "\n".join([checks[0], run, *checks[1:], "", text]).encode()
    return made


def main() -> None:
    """Writes all files and says which."""
    (ROOT / DIRECTORY).mkdir(exist_ok=True)
    for path, content in files().items():
        path.write_bytes(content)
        print(path.relative_to(ROOT.parent))


if __name__ == "__main__":
    main()
