"""From serving params and a checkpoint to a servable model."""

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
from saxml_ext.engine import runner as runner_lib
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
from saxml_ext.server.scheduling import stats
from saxml_ext.server.vocabulary import codec

# A model that is reloaded takes the programs of the one that it replaces.
_LIVING = recent_programs.Living()
# The log of a group does not carry them.
_ALONE = (scheduler.EMBED, scheduler.GRADIENT)


@dataclasses.dataclass(frozen=True)
class Plan:
  """What a model will be, known before its weights are read.

  Attributes:
    spec: what was asked for.
    settings: of the params, completed by what the checkpoint says.
    stored: the checkpoint, or random weights.
    model: sizes.
    engine: how it is run here.
    stacked: whether its layers are stacked; only with a mesh.
    mesh: the devices to split it among; None: one, without a choice.
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
    """As a program set names it."""
    return manifest.Serving(self.spec.model_path, dict(self.spec.overrides))

  @property
  def form(self) -> split_weights.Form:
    """What is made of its weights."""
    s = self.settings
    return split_weights.Form(
      s.dtype, s.quantization, s.quantize_head, self.stacked
    )

  def executables(self) -> executables.Executables:
    """The programs of the model, to be compiled or looked for."""
    return executables.Executables(
      state.Settings(self.model, self.engine), self._shapes(), self.mesh
    )

  def weights(self) -> weights_lib.Weights:
    """Reads the weights; of those that are split, this process's shards.

    Raises:
      errors.InvalidArgument: a variable is damaged, or cannot be used.
    """
    if self.mesh is None:
      return self.stored.weights(self.model, self.settings, None)
    return self.stored.split(self.model, self.form, self.mesh)

  def _shapes(self) -> weights_lib.Weights:
    """Shapes of its weights."""
    if self.mesh is not None:
      return split_weights.structs(self.model, self.form, self.mesh)
    s = self.settings
    return abstract_weights.unrolled(
      self.model, s.dtype, s.quantization, s.quantize_head
    )


def load(
  spec: 'entry_lib.Spec | Plan',
  on_failure: Callable[[str], None],
  programs: programs_lib.Programs = programs_lib.NONE,
  seed: int | None = None,
) -> servable.Servable:
  """Loads a model and all programs it will run; takes seconds to minutes.

  Args:
    spec: what to load, or the plan of it.
    on_failure: called with the reason if its engine fails later on.
    programs: compiled before; what is not among them is compiled.
    seed: see `serve`.

  Raises:
    errors.InvalidArgument: params, overrides or checkpoint are not usable.
    errors.Unimplemented: the params ask for what the engine does not do.
    errors.FailedPrecondition: the programs do not match; see `Programs.of`.
  """
  ready = prepare(spec, programs)
  return serve(ready.settings, ready.codecs, ready.start(), on_failure, seed)


def prepare(
  spec: 'entry_lib.Spec | Plan',
  programs: programs_lib.Programs = programs_lib.NONE,
) -> prepared.Prepared:
  """Loads a model without a scheduler, as far as a process can do alone.

  In a group each process calls it, reads its own shards of the weights and
  takes or compiles all programs. Nothing has run until all of them `start`.

  Raises:
    errors.InvalidArgument, errors.Unimplemented, errors.FailedPrecondition: as
      `load`.
  """
  begin = time.monotonic()
  with executables.counting_compilations() as compiled:
    # What may fail comes before the long part, the reading of the weights.
    made = spec if isinstance(spec, Plan) else plan(spec)
    spec = made.spec
    shapes = made.executables()
    source = programs.of(shapes, made.serving)
    vocab_size = made.model.vocab_size
    codecs = load_codecs(made.settings, vocab_size, spec.checkpoint_path)
    weights = made.weights()
    logging.info(
      '%s (%.1f s)',
      'made up random weights'
      if isinstance(made.stored, random_model.RandomModel)
      else f'read {spec.checkpoint_path}',
      time.monotonic() - begin,
    )
    run = runner_lib.prepare(
      weights,
      made.model,
      made.engine,
      made.mesh,
      _LIVING.ready(shapes, source),
    )
    del weights
    run.prepare_all(progress=cancellation.progress)
    _LIVING.add(run)
  memory.give_back()
  logging.info(
    'loaded %s in %.1f s, %d programs compiled',
    spec.model_path,
    time.monotonic() - begin,
    len(compiled),
  )
  fingerprint = made.stored.fingerprint()
  return prepared.Prepared(
    made.settings,
    codecs,
    prepared.identity(spec, fingerprint, run, source),
    run,
  )


def plan(spec: entry_lib.Spec) -> Plan:
  """Decides all that can be decided without reading weights.

  Raises:
    errors.InvalidArgument, errors.Unimplemented: as `load`.
  """
  settings = settings_lib.published(spec.model_path, spec.overrides)
  _check_hosts(settings)
  stored, said = _open(spec, settings)
  settings = stored_model.complete(settings, said)
  model = stored.config(settings)
  settings = stored_model.with_head(stored, settings, model)
  _check_ids(settings, model.vocab_size)
  on_tpu = _on_tpu()
  mesh = meshes.choose(spec.model_path, model, settings)
  engine = settings.engine
  if on_tpu:
    engine = config_lib.tiled(engine, sharding.slot_parts(mesh))
  return Plan(
    spec=spec,
    settings=settings,
    stored=stored,
    model=model,
    engine=engine,
    stacked=on_tpu,
    mesh=mesh,
  )


def _check_hosts(settings: settings_lib.Settings) -> None:
  """Raises errors.Unimplemented for what a group of hosts cannot do."""
  alone = [m for m in settings.methods if m in _ALONE]
  if alone and jax.process_count() > 1:
    raise errors.Unimplemented(
      f'{" and ".join(alone)} are not served by a group of several hosts:'
      ' publish to a model server on one host, or without'
      ' TEXT_TO_EMBEDDING_OUTPUT_EMBEDDING_NAME and'
      ' GRADIENT_WRT_INPUT_TENSOR_NAMES'
    )


def _open(
  spec: entry_lib.Spec, settings: settings_lib.Settings
) -> tuple[stored_model.Source, description_lib.Description]:
  """A checkpoint, or what takes its place, and what stands beside it."""
  path = spec.checkpoint_path
  if settings.test_mode and random_model.is_meant(path):
    nothing = description_lib.Description()
    return random_model.RandomModel(spec.model_path), nothing
  path = checkpoint_path(path)
  above = roots.allows(os.path.dirname(path.rstrip('/')))
  return stored_model.StoredModel(path), description_lib.read(path, above)


def serve(
  settings: settings_lib.Settings,
  codecs: codec.Codecs,
  runner: scheduler.Runner,
  on_failure: Callable[[str], None],
  seed: int | None = None,
) -> servable.Servable:
  """Puts a scheduler around an engine that is ready.

  Args:
    settings: of the model.
    codecs: of its texts.
    runner: its engine.
    on_failure: called with the reason if the engine fails.
    seed: of the seeds of requests that give none; None: those are random.
  """
  method_stats = {method: stats.MethodStats() for method in settings.methods}
  # The scheduler counts in these also where only the other kind is served.
  unseen = {
    method: stats.MethodStats()
    for method in (scheduler.GENERATE, scheduler.SCORE)
  }
  return servable.Servable(
    settings=settings,
    codecs=codecs,
    eos_id=settings.engine.eos_id,
    method_stats=method_stats,
    scheduler=scheduler.Scheduler(
      runner,
      limit=settings.admission_limit,
      buckets=settings.engine.prompt_buckets,
      patience=settings.admission_wait,
      stream_interval=settings.stream_interval,
      seed=seed,
      method_stats={**unseen, **method_stats},
      on_failure=on_failure,
    ),
  )


def load_codecs(
  settings: settings_lib.Settings, vocab_size: int, checkpoint_path: str
) -> codec.Codecs:
  """Returns the codecs of a model's texts.

  Args:
    settings: of the model.
    vocab_size: ids from 0 to below it are the model's.
    checkpoint_path: where a tokenizer is looked for, unless the settings name
      its place.

  Raises:
    errors.InvalidArgument: a tokenizer is needed and cannot be read.
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


def _unneeded_tokenizer(
  settings: settings_lib.Settings, checkpoint_path: str
) -> codec.Codec | None:
  """The tokenizer beside a tokenized model, if there is a sound one."""
  try:
    return codec.find_tokenizer(settings.vocabulary_path, checkpoint_path)
  except errors.InvalidArgument as e:
    # Sax's own methods do without it, so that this is no reason to fail.
    logging.warning('completions of this model are of ids alone: %s', e)
    return None


def checkpoint_path(path: str) -> str:
  """Returns the path of a checkpoint, if it is a directory.

  Raises:
    errors.InvalidArgument: it is none, or stands for random weights.
    errors.PermissionDenied: this server may not load from there.
  """
  if path in ('', 'None'):
    raise errors.InvalidArgument(
      f'the checkpoint path is {path!r}, but this server does not make up'
      ' weights but for test params, such as LmCloudSpmd175B32Test: publish'
      ' with the path of a PAX checkpoint, such as convert_gptj_ckpt writes'
    )
  roots.check(path, 'checkpoint')
  if not storage.is_dir(path):
    raise errors.InvalidArgument(
      f'checkpoint {path!r} is no directory that this server can read; publish with'
      ' a path on a file system that all model servers share, or a gs:// or'
      ' s3:// URL'
    )
  return path


def _check_ids(settings: settings_lib.Settings, vocab_size: int) -> None:
  """Raises errors.InvalidArgument for an id that the model does not have."""
  ids = [('EOS_ID', settings.engine.eos_id), ('SOS_ID', settings.sos_id)]
  ids += [('STOP_TOKEN_IDS', i) for i in settings.stop_ids or ()]
  for name, value in ids:
    if value is not None and not 0 <= value < vocab_size:
      raise errors.InvalidArgument(
        f'{name}={value} is not in the vocabulary of {vocab_size} ids: publish'
        f' with an id from 0 to {vocab_size - 1}'
      )
  if (settings.engine.tokens_per_beam or 0) > vocab_size:
    raise errors.InvalidArgument(
      f'TOKENS_PER_BEAM={settings.engine.tokens_per_beam} is above the'
      f' {vocab_size} ids of the vocabulary: lower it'
    )


def _on_tpu() -> bool:
  return jax.default_backend() == 'tpu'
