"""Loads a servable model from serving params and a checkpoint."""

from collections.abc import Callable
import dataclasses
import os
import time

from absl import logging
import jax

from saxml_ext.aot import manifest
from saxml_ext.common import errors
from saxml_ext.common import memory
from saxml_ext.common import storage
from saxml_ext.common.security import roots
from saxml_ext.engine import abstract_weights
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import executables
from saxml_ext.engine import platform_configs
from saxml_ext.engine import preparation
from saxml_ext.engine import sharding
from saxml_ext.engine import state
from saxml_ext.engine import weights as weights_lib
from saxml_ext.engine.parallel import split_weights
from saxml_ext.params import settings as settings_lib
from saxml_ext.pax import description as description_lib
from saxml_ext.server.lifecycle import cancellation
from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.loading import random_model
from saxml_ext.server.loading import servable
from saxml_ext.server.loading import stored_model
from saxml_ext.server.parallel import meshes
from saxml_ext.server.parallel import prepared
from saxml_ext.server.programs import programs as programs_lib
from saxml_ext.server.programs import recent_programs
from saxml_ext.server.scheduling import scheduler
from saxml_ext.server.vocabulary import codec

# A reloaded model reuses the programs of the model that it replaces.
_RECENT = recent_programs.RecentPrograms()
# The log of a group does not support these methods.
_ALONE = (scheduler.EMBED, scheduler.GRADIENT)


@dataclasses.dataclass(frozen=True)
class Plan:
  """The facts about a model that are known before its weights are read.

  Attributes:
    spec: The model that was requested.
    settings: The settings of the params, completed by the checkpoint.
    stored: The checkpoint or the random weights.
    model: The sizes of the model.
    engine: The configuration of the engine on this server.
    stacked: True if the layers are stacked: on a TPU, and on a CPU with
      max_context.
    mesh: The devices that share the model; None for the default device.
  """

  spec: entry_lib.Spec
  settings: settings_lib.Settings
  stored: stored_model.Source
  model: config_lib.ModelConfig
  engine: config_lib.EngineConfig
  stacked: bool
  mesh: jax.sharding.Mesh | None

  @property
  def serving(self) -> manifest.Serving:
    """The model's description in a program set."""
    return manifest.Serving(self.spec.model_path, dict(self.spec.overrides))

  @property
  def form(self) -> split_weights.Form:
    """The form of the loaded weights."""
    s = self.settings
    return split_weights.Form(
      s.dtype, s.quantization, s.quantize_head, self.stacked
    )

  def executables(
    self,
    ready: executables.Ready | None = None,
    build: executables.Build | None = None,
  ) -> executables.Executables:
    """Returns the programs of the model; see `executables.Executables`."""
    settings = state.Settings(self.model, self.engine)
    return executables.Executables(
      settings, self._shapes(), self.mesh, ready, build
    )

  def weights(self) -> weights_lib.Weights:
    """Reads the weights; with a mesh, only the shards of this process.

    Raises:
      errors.InvalidArgument: A variable is damaged or cannot be used.
    """
    if self.mesh is None:
      return self.stored.weights(self.model, self.settings, None)
    return self.stored.split(self.model, self.form, self.mesh)

  def _shapes(self) -> weights_lib.Weights:
    """Returns the shapes of the weights."""
    if self.mesh is not None:
      return split_weights.structs(self.model, self.form, self.mesh)
    s = self.settings
    form = s.dtype, s.quantization, s.quantize_head
    return abstract_weights.shapes(self.model, *form, stacked=self.stacked)


def load(
  spec: 'entry_lib.Spec | Plan',
  on_failure: Callable[[str], None],
  programs: programs_lib.Programs = programs_lib.NONE,
  seed: int | None = None,
) -> servable.Servable:
  """Loads a model and its programs; takes seconds to minutes.

  With COMPILE_BEHIND, the model serves as soon as it has the programs for short
  requests. The others are loaded or compiled on background threads.

  Args:
    spec: The model to load, or its plan.
    on_failure: A function that is called with the reason if the engine fails
      later.
    programs: The precompiled programs; missing programs are compiled.
    seed: The seed for requests without one, see `servable.serve`.

  Raises:
    errors.InvalidArgument: The params, overrides or checkpoint are not usable.
    errors.Unimplemented: The engine does not support the params.
    errors.FailedPrecondition: The programs do not match, see `Programs.find`.
  """
  ready = prepare(spec, programs, all_programs=False)
  run = ready.run
  served = servable.serve(
    ready.settings, ready.codecs, ready.start(), on_failure, seed
  )
  if ready.settings.compile_behind:
    run.prepare_rest(memory.giving_back(logging.info), done=_RECENT.add)
  return dataclasses.replace(
    served, on_closed=run.stop, programs=lambda: run.counts
  )


def prepare(
  spec: 'entry_lib.Spec | Plan',
  programs: programs_lib.Programs = programs_lib.NONE,
  all_programs: bool = True,
) -> prepared.Prepared:
  """Loads a model without a scheduler, as far as one process can.

  In a group, each process calls this function, reads its own shards of the
  weights, and takes or compiles all programs. No program runs before all
  processes call `start`.

  Args:
    spec: The model to load, or its plan.
    programs: The precompiled programs; missing programs are compiled.
    all_programs: True to ignore COMPILE_BEHIND.

  Raises:
    errors.InvalidArgument: The params, overrides or checkpoint are not usable.
    errors.Unimplemented: The engine does not support the params.
    errors.FailedPrecondition: The programs do not match, see `Programs.find`.
  """
  begin = time.monotonic()
  with executables.counting_compilations() as compiled:
    # To read the weights takes long, so the steps that may fail come first.
    made = spec if isinstance(spec, Plan) else plan(spec)
    spec = made.spec
    shapes = made.executables()
    source = programs.find(shapes, made.serving)
    vocab_size = made.model.vocab_size
    codecs = load_codecs(made.settings, vocab_size, spec.checkpoint_path)
    settings = started(made.settings, codecs)
    ready = _RECENT.ready(shapes, source)
    build = None if source is None else source.build
    early = made.executables(ready, build)
    some = settings.compile_behind and not all_programs
    keys = early.first() if some else early.keys()
    with early.preparing(keys):
      cancellation.progress('reading the weights')
      weights = made.weights()
      is_random = isinstance(made.stored, random_model.RandomModel)
      read = (
        'created random weights'
        if is_random
        else f'read {spec.checkpoint_path}'
      )
      logging.info('%s (%.1f s)', read, time.monotonic() - begin)
      run = preparation.prepare(
        weights, made.model, made.engine, made.mesh, ready, build
      )
      del weights
      run.share(early)
      run.prepare(keys, cancellation.progress)
    _RECENT.add(run)
  memory.give_back()
  logging.info(
    'loaded %s in %.1f s, %d programs compiled',
    spec.model_path,
    time.monotonic() - begin,
    len(compiled),
  )
  identity = prepared.identity(spec, made.stored.fingerprint(), run, source)
  return prepared.Prepared(settings, codecs, identity, run)


def plan(spec: entry_lib.Spec) -> Plan:
  """Returns the plan of a load, without reading weights.

  Raises:
    errors.InvalidArgument: The params, overrides or checkpoint are not usable.
    errors.Unimplemented: The engine does not support the params.
  """
  settings = settings_lib.published(spec.model_path, spec.overrides)
  _check_hosts(settings)
  stored, description = _open(spec, settings)
  settings = stored_model.complete(settings, description)
  model = stored.config(settings)
  settings = stored_model.with_head(stored, settings, model)
  stored_model.check_ids(settings, model.vocab_size)
  platform = jax.default_backend()
  if settings.quantization == 'fp8' and platform != 'gpu':
    raise errors.Unimplemented(
      f"{spec.model_path}: QUANTIZATION='fp8' needs an NVIDIA GPU, but this"
      f" server uses a {platform.upper()}. Publish with QUANTIZATION='int8'."
    )
  mesh = meshes.choose(spec.model_path, model, settings)
  engine = settings.engine
  if mesh is not None or platform != 'cpu':
    engine = platform_configs.without_context(engine)
  if platform == 'cpu':
    engine = platform_configs.on_cpu(engine)
  settings = dataclasses.replace(settings, engine=engine)
  if platform == 'gpu' and mesh is None:
    engine = platform_configs.on_gpu(engine)
  elif platform != 'cpu':
    engine = platform_configs.tiled(engine, sharding.slot_parts(mesh))
  return Plan(
    spec=spec,
    settings=settings,
    stored=stored,
    model=model,
    engine=engine,
    stacked=platform == 'tpu' or engine.max_context > 0,
    mesh=mesh,
  )


def _check_hosts(settings: settings_lib.Settings) -> None:
  """Raises errors.Unimplemented for methods that host groups do not support."""
  alone = [m for m in settings.methods if m in _ALONE]
  if alone and jax.process_count() > 1:
    raise errors.Unimplemented(
      f'{" and ".join(alone)} are not supported by a group of several hosts.'
      ' Publish to a model server on one host, or without'
      ' TEXT_TO_EMBEDDING_OUTPUT_EMBEDDING_NAME and'
      ' GRADIENT_WRT_INPUT_TENSOR_NAMES.'
    )


def _open(
  spec: entry_lib.Spec, settings: settings_lib.Settings
) -> tuple[stored_model.Source, description_lib.Description]:
  """Opens a checkpoint or random weights; returns them and a description."""
  path = spec.checkpoint_path
  if settings.test_mode and random_model.is_meant(path):
    nothing = description_lib.Description()
    return random_model.RandomModel(spec.model_path), nothing
  path = checkpoint_path(path)
  above = roots.allows(os.path.dirname(path.rstrip('/')))
  return stored_model.StoredModel(path), description_lib.read(path, above)


def load_codecs(
  settings: settings_lib.Settings, vocab_size: int, checkpoint_path: str
) -> codec.Codecs:
  """Returns the codecs of a model's texts.

  Args:
    settings: The settings of the model.
    vocab_size: The number of ids of the model.
    checkpoint_path: The path of the checkpoint. The tokenizer is searched for
      beside it, unless the settings have a vocabulary path.

  Raises:
    errors.InvalidArgument: A tokenizer is needed and cannot be read.
  """
  ids = codec.IdCodec(vocab_size)
  if not settings.needs_tokenizer:
    words = _unneeded_tokenizer(settings, checkpoint_path)
    return codec.Codecs(ids, ids, vocab_size, words)
  words = codec.load_tokenizer(settings.vocabulary_path, checkpoint_path)
  return codec.Codecs(
    ids if settings.tokenized_input else words,
    ids if settings.tokenized_output else words,
    vocab_size,
    words,
  )


def started(
  settings: settings_lib.Settings, codecs: codec.Codecs
) -> settings_lib.Settings:
  """Returns settings with the tokenizer's start id, if the params take it.

  Raises:
    errors.InvalidArgument: The tokenizer adds other ids, or the id is not in
      the vocabulary.
  """
  if not settings.takes_start or codecs.words is None:
    return settings
  start = codecs.words.start_id()
  with_start = dataclasses.replace(settings, sos_id=start, takes_start=False)
  stored_model.check_ids(with_start, codecs.vocab_size)
  return with_start


def _unneeded_tokenizer(
  settings: settings_lib.Settings, checkpoint_path: str
) -> codec.Codec | None:
  """Returns the tokenizer beside a tokenized model, if it is valid."""
  try:
    return codec.find_tokenizer(settings.vocabulary_path, checkpoint_path)
  except errors.InvalidArgument as e:
    # Sax's own methods do not need the tokenizer, so the load does not fail.
    logging.warning('completions of this model have only ids, no text: %s', e)
    return None


def checkpoint_path(path: str) -> str:
  """Returns the path of a checkpoint after checking it.

  Raises:
    errors.InvalidArgument: The path is not a directory, or it stands for random
      weights.
    errors.PermissionDenied: This server may not load from the path.
  """
  if path in ('', 'None'):
    raise errors.InvalidArgument(
      f'the checkpoint path is {path!r}, but only test params, such as'
      ' LmCloudSpmd175B32Test, have random weights. Publish with the path of a'
      ' PAX checkpoint, for example one that convert_gptj_ckpt wrote.'
    )
  roots.check(path, 'checkpoint')
  if not storage.is_dir(path):
    raise errors.InvalidArgument(
      f'checkpoint {path!r} is not a directory that this server can read.'
      ' Publish with a path on a file system that all model servers share, or'
      ' with a gs:// or s3:// URL.'
    )
  return path
