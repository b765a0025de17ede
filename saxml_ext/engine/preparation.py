"""Checks a model and its settings, and returns the programs of a Runner."""

import jax

from saxml_ext.engine import config as config_lib
from saxml_ext.engine import executables
from saxml_ext.engine import sharding
from saxml_ext.engine import state
from saxml_ext.engine import texts
from saxml_ext.engine import weights as weights_lib


def prepare(
  weights: weights_lib.Weights,
  model_config: config_lib.ModelConfig,
  engine_config: config_lib.EngineConfig,
  mesh: jax.sharding.Mesh | None = None,
  ready: executables.Ready | None = None,
  build: executables.Build | None = None,
) -> executables.Executables:
  """Returns the programs of a Runner; runs nothing on the devices.

  One process of a group can call it alone.

  Args:
    weights: The model, with layers unrolled or stacked, whole or already split
      over the mesh.
    model_config: The configuration of the model.
    engine_config: The settings of the engine.
    mesh: The devices that share the model; see `sharding.py`. None stands for a
      single device.
    ready: A source of compiled programs. None stands for no source.
    build: The function that compiles the other programs. None stands for JAX.

  Raises:
    ValueError: The vocabulary is too small, or the mesh does not divide the
      sizes.
  """
  e = engine_config
  least = (1 + e.max_stop_ids) * e.most_beams
  if model_config.vocab_size < least:
    raise ValueError(
      f'vocab_size is {model_config.vocab_size}, but must be at least {least}'
      f' for {e.num_beams} beams and {e.max_stop_ids} stop ids.'
    )
  if model_config.vocab_size < e.max_logprobs:
    raise ValueError(
      f'max_logprobs is {e.max_logprobs}, but the vocabulary has only'
      f' {model_config.vocab_size} tokens.'
    )
  texts.check(e, weights, mesh)
  if mesh is not None:
    sharding.check(mesh, model_config, e.num_slots)
    weights = sharding.shard(mesh, sharding.pad(mesh, weights))
  settings = state.Settings(model_config, e)
  return executables.Executables(settings, weights, mesh, ready, build)
