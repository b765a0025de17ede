"""Loads the Pax experiments that the command line names.

Any importable class can be named. paxml is imported when the first experiment
is loaded, because the import takes seconds and about 300 MB.
"""

import abc
from collections.abc import Callable, Collection
import importlib
import inspect
import time

from absl import logging

from saxml_ext.common import errors
from saxml_ext.common import storage
from saxml_ext.params import overrides
from saxml_ext.params import registry
from saxml_ext.params import settings as settings_lib
from saxml_ext.pax import errors as pax_errors
from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.lifecycle import lifecycle
from saxml_ext.server.loading import loader
from saxml_ext.server.loading import servable


def check(experiments: Collection[str]) -> None:
  """Checks names of experiment classes without importing them.

  Raises:
    errors.InvalidArgument: A name is not a dotted name, or it names serving
      params.
  """
  for name in experiments:
    if '.' not in name or not all(n.isidentifier() for n in name.split('.')):
      raise errors.InvalidArgument(
        f'{name!r} is not an experiment class, such as module.path.ClassName'
      )
    if name in registry.names():
      raise errors.InvalidArgument(
        f'{name} is the name of serving params of this server, so it needs no'
        ' --pax_experiments entry'
      )


def load_fn(
  experiments: Collection[str],
  fallback: lifecycle.LoadFn[servable.Servable] = loader.load,
) -> lifecycle.LoadFn[servable.Servable]:
  """Returns a function that loads these experiments and all other models.

  Args:
    experiments: The Python paths of experiment classes. A load runs the code of
      the module, so only these names are ever imported.
    fallback: A function that loads all other models.
  """

  def load(
    spec: entry_lib.Spec, on_failure: Callable[[str], None]
  ) -> servable.Servable:
    if spec.model_path in experiments:
      return _load(spec, on_failure)
    return fallback(spec, on_failure)

  return load


def _load(
  spec: entry_lib.Spec, on_failure: Callable[[str], None]
) -> servable.Servable:
  """Restores an experiment's model and compiles all its programs.

  Raises:
    errors.InvalidArgument: The name, the checkpoint or an attribute is not
      usable.
    errors.Unimplemented: The attributes or the decoder are not supported.
  """
  begin = time.monotonic()
  if storage.is_url(spec.checkpoint_path):
    raise errors.InvalidArgument(
      f'checkpoint {spec.checkpoint_path}: paxml restores only from'
      ' directories here, not from buckets. Copy it to a directory.'
    )
  path = loader.checkpoint_path(spec.checkpoint_path)
  # The import is here because it is slow. It must precede the import of the
  # experiment's module, because it prepares the import of paxml.
  from saxml_ext.params.experiments import pax_serving
  from saxml_ext.params.experiments import praxis_runner
  from saxml_ext.pax import restore

  experiment = _find(spec.model_path)
  try:
    restored = restore.restore(experiment(), path)
  except (pax_errors.CheckpointError, TypeError) as e:
    raise errors.InvalidArgument(str(e)) from e
  logging.info('paxml restored %s (%.1f s)', path, time.monotonic() - begin)
  own_decoder = restored.model.decoder_tpl
  params = overrides.apply(
    pax_serving.params_of(experiment, own_decoder), spec.overrides
  )
  settings = settings_lib.checked(spec.model_path, params)
  codecs = loader.load_codecs(settings, restored.model.lm_tpl.vocab_size, path)
  settings = loader.started(settings, codecs)
  runner = praxis_runner.PraxisRunner(
    restored.model,
    restored.variables,
    settings,
    pax_serving.hparams(settings, own_decoder),
  )
  runner.warm_up(progress=logging.info)
  logging.info('loaded %s in %.1f s', spec.model_path, time.monotonic() - begin)
  return servable.serve(settings, codecs, runner, on_failure)


def _find(name: str) -> type:
  """Imports an experiment class.

  Raises:
    errors.InvalidArgument: There is no such class, or it is not an experiment.
  """
  from paxml import base_experiment

  module, _, attribute = name.rpartition('.')
  try:
    experiment = getattr(importlib.import_module(module), attribute)
  except (ImportError, AttributeError) as e:
    raise errors.InvalidArgument(
      f'{name} cannot be imported: {e}. Its module must be on the Python path'
      ' of this server.'
    ) from e
  if not isinstance(experiment, type) or not issubclass(
    experiment, base_experiment.BaseExperiment
  ):
    raise errors.InvalidArgument(
      f'{name} is {experiment!r}, but must be a subclass of'
      ' paxml.base_experiment.BaseExperiment'
    )
  if isinstance(experiment, abc.ABCMeta) and inspect.isabstract(experiment):
    missing = ', '.join(sorted(experiment.__abstractmethods__))
    raise errors.InvalidArgument(
      f'{name} is abstract, because it lacks {missing}. Define it.'
    )
  return experiment
