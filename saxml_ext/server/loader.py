"""From serving params and a checkpoint to a servable model."""

from collections.abc import Callable
import dataclasses
import math
import time

from absl import logging
import jax

from saxml_ext.common import errors
from saxml_ext.common import storage
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import runner as runner_lib
from saxml_ext.engine import sharding
from saxml_ext.engine import weights as weights_lib
from saxml_ext.params import overrides
from saxml_ext.params import registry
from saxml_ext.params import settings as settings_lib
from saxml_ext.pax import checkpoint
from saxml_ext.pax import description as description_lib
from saxml_ext.pax import errors as pax_errors
from saxml_ext.server import codec
from saxml_ext.server import scheduler
from saxml_ext.server import servable
from saxml_ext.server import spec as spec_lib
from saxml_ext.server import stats

_DEFAULT_LN_EPSILON = 1e-5


def load(
    spec: spec_lib.Spec, on_failure: Callable[[str], None]
) -> servable.Servable:
  """Loads a model and compiles all it will run; takes seconds to minutes.

  Args:
    spec: what to load.
    on_failure: called with the reason if its engine fails later on.

  Raises:
    errors.InvalidArgument: params, overrides or checkpoint are not usable.
    errors.Unimplemented: the params ask for what the engine does not do.
  """
  return serve(*prepare(spec), on_failure)


def prepare(
    spec: spec_lib.Spec,
) -> tuple[
    settings_lib.Settings, tuple[codec.Codec, codec.Codec], runner_lib.Runner
]:
  """Settings, codecs and engine of a model, nobody driving it yet.

  Raises what `load` raises.
  """
  begin = time.monotonic()
  params = overrides.apply(registry.lookup(spec.model_path), spec.overrides)
  try:
    settings = settings_lib.Settings.of(params)
  except (TypeError, ValueError) as e:  # An attribute of an unusable form.
    raise errors.InvalidArgument(f'{spec.model_path}: {e}') from e
  path = checkpoint_path(spec.checkpoint_path)
  try:
    variables = checkpoint.read_variables(path)
  except pax_errors.CheckpointError as e:
    raise errors.InvalidArgument(str(e)) from e
  settings = _complete(settings, description_lib.read(path))
  logging.info('read %s (%.1f s)', path, time.monotonic() - begin)

  model_config = _model_config(variables, settings)
  # Before the long part, as it may fail.
  codecs = load_codecs(settings, model_config.vocab_size, path)
  mesh = _mesh(spec.model_path, model_config, settings)
  weights = _weights(variables, model_config, settings, mesh)
  del variables  # Half of the memory, from here on.
  engine_config = _engine_config(settings)
  if weights.stacked:
    engine_config = config_lib.tiled(engine_config)
  runner = runner_lib.Runner(weights, model_config, engine_config, mesh)
  runner.warm_up(progress=logging.info)
  logging.info('loaded %s in %.1f s', spec.model_path, time.monotonic() - begin)
  return settings, codecs, runner


def serve(
    settings: settings_lib.Settings,
    codecs: tuple[codec.Codec, codec.Codec],
    runner: scheduler.Runner,
    on_failure: Callable[[str], None],
) -> servable.Servable:
  """Puts a scheduler around an engine that is ready.

  Args:
    settings: of the model.
    codecs: of its input and its output.
    runner: its engine.
    on_failure: called with the reason if the engine fails.
  """
  method_stats = {method: stats.MethodStats() for method in settings.methods}
  return servable.Servable(
      settings=settings,
      input_codec=codecs[0],
      output_codec=codecs[1],
      eos_id=settings.eos_id,
      method_stats=method_stats,
      scheduler=scheduler.Scheduler(
          runner,
          limit=settings.admission_limit,
          buckets=settings.prompt_buckets,
          patience=settings.admission_wait,
          method_stats=method_stats,
          on_failure=on_failure,
      ),
  )


def load_codecs(
    settings: settings_lib.Settings, vocab_size: int, checkpoint_path: str
) -> tuple[codec.Codec, codec.Codec]:
  """Codecs of input and output."""
  ids = codec.IdCodec(vocab_size)
  words = ids
  if settings.needs_tokenizer:
    words = codec.load_tokenizer(settings.vocabulary_path, checkpoint_path)
  return (
      ids if settings.tokenized_input else words,
      ids if settings.tokenized_output else words,
  )


def checkpoint_path(path: str) -> str:
  if path in ('', 'None'):
    raise errors.InvalidArgument(
        f'checkpoint path {path!r}: this server does not make up weights;'
        ' publish with the path of a PAX checkpoint, such as'
        ' convert_gptj_ckpt writes'
    )
  if not storage.is_dir(path):
    raise errors.InvalidArgument(
        f'checkpoint {path!r} is no directory that this server can read; give'
        ' a path on a file system that all model servers share, or a gs:// or'
        ' s3:// URL'
    )
  return path


def _complete(
    settings: settings_lib.Settings, said: description_lib.Description
) -> settings_lib.Settings:
  """Fills in what the params leave to the checkpoint."""
  missing = [
      name
      for name, own, other in (
          ('EOS_ID', settings.eos_id, said.eos_id),
          ('ROTARY_DIM', settings.rotary_dim, said.rotary_dim),
      )
      if own is None and other is None
  ]
  if missing:
    names = ' and '.join(missing)
    raise errors.InvalidArgument(
        f'neither the serving params nor a gptj_config.json beside the'
        f' checkpoint give {names}: convert the checkpoint with'
        ' convert_gptj_ckpt, or publish with the override'
        f' {missing[0]}=<number>'
    )
  total = settings.max_prompt + settings.max_new_tokens
  if total > (said.max_positions or math.inf):
    raise errors.InvalidArgument(
        f'INPUT_SEQ_LEN={settings.max_prompt} plus MAX_DECODE_STEPS='
        f'{settings.max_new_tokens} is {total}, above the'
        f' {said.max_positions} positions of the model: lower one of them'
    )
  return dataclasses.replace(
      settings,
      eos_id=_first(settings.eos_id, said.eos_id),
      rotary_dim=_first(settings.rotary_dim, said.rotary_dim),
      ln_epsilon=_first(
          settings.ln_epsilon, said.ln_epsilon, _DEFAULT_LN_EPSILON
      ),
  )


def _model_config(
    variables, settings: settings_lib.Settings
) -> config_lib.GPTJConfig:
  """Reads the model's sizes off its variables and checks them."""
  try:
    found = config_lib.GPTJConfig.from_pax(variables, settings.rotary_dim)
  except (KeyError, ValueError) as e:
    raise errors.InvalidArgument(
        f'the checkpoint is none of the GPT-J that is to be served: {e}'
    ) from e
  for name, expected in settings.shape.items():
    if getattr(found, name) != expected:
      raise errors.InvalidArgument(
          f'the checkpoint has {name}={getattr(found, name)}, but the serving'
          f' params are for {expected}: publish the checkpoint with the params'
          ' of its model'
      )
  ids = [('EOS_ID', settings.eos_id), ('SOS_ID', settings.sos_id)]
  ids += [('STOP_TOKEN_IDS', i) for i in settings.stop_ids or ()]
  for name, value in ids:
    if value is not None and not 0 <= value < found.vocab_size:
      raise errors.InvalidArgument(
          f'{name}={value} is not in the vocabulary of {found.vocab_size} ids'
      )
  if (settings.tokens_per_beam or 0) > found.vocab_size:
    raise errors.InvalidArgument(
        f'TOKENS_PER_BEAM={settings.tokens_per_beam} is above the'
        f' {found.vocab_size} ids of the vocabulary: lower it'
    )
  return dataclasses.replace(found, ln_epsilon=settings.ln_epsilon)


def _mesh(
    model_path: str,
    model_config: config_lib.GPTJConfig,
    settings: settings_lib.Settings,
) -> jax.sharding.Mesh | None:
  """The devices to split the model among; None: one, without a choice."""
  shape = settings.mesh_shape
  size = math.prod(shape)
  if size > jax.local_device_count():
    logging.warning(
        '%s was written for %d devices (ICI_MESH_SHAPE); it runs on one here',
        model_path,
        size,
    )
    shape, size = (1, 1, 1), 1
  if size == 1 and not _on_tpu():
    return None
  try:
    mesh = sharding.make_mesh(shape)
    sharding.check(mesh, model_config, settings.num_slots)
  except ValueError as e:
    raise errors.InvalidArgument(
        f'{model_path}: ICI_MESH_SHAPE={list(shape)} does not suit: {e}'
    ) from e
  logging.info('%s is split among devices as %s', model_path, dict(mesh.shape))
  return mesh


def _weights(
    variables,
    model_config: config_lib.GPTJConfig,
    settings: settings_lib.Settings,
    mesh: jax.sharding.Mesh | None,
) -> weights_lib.Weights:
  # What is to be split may be too large for one device: it starts on the host.
  host = jax.local_devices(backend='cpu')[0] if mesh is not None else None
  try:
    with jax.default_device(host):
      weights = weights_lib.from_pax(
          variables,
          model_config,
          settings.dtype,
          settings.quantization,
          settings.quantize_head,
      )
      return weights_lib.stack(weights) if _on_tpu() else weights
  except ValueError as e:
    raise errors.InvalidArgument(f'the checkpoint is not usable: {e}') from e


def _on_tpu() -> bool:
  return jax.default_backend() == 'tpu'


def _engine_config(
    settings: settings_lib.Settings,
) -> config_lib.EngineConfig:
  return config_lib.EngineConfig(
      num_slots=settings.num_slots,
      max_prompt=settings.max_prompt,
      prompt_buckets=settings.prompt_buckets,
      max_new_tokens=settings.max_new_tokens,
      min_new_tokens=settings.min_new_tokens,
      num_beams=settings.num_beams,
      length_penalty=settings.length_penalty,
      early_stopping=settings.early_stopping,
      search=settings.search,
      max_stop_ids=settings.max_stop_ids,
      max_top_k=settings.max_top_k,
      temperature=settings.temperature,
      length_norm_alpha=settings.length_norm_alpha,
      tokens_per_beam=settings.tokens_per_beam,
      early_exit=settings.early_exit,
      eos_id=settings.eos_id,
      pad_id=settings.eos_id,
      kv_dtype=settings.kv_dtype,
      prefill_chunk=settings.prefill_chunk,
  )


def _first(*values):
  return next((value for value in values if value is not None), None)
