"""Makes models for fake engines: their params, and ids for text."""

from typing import NamedTuple

from saxml_ext.params import overrides
from saxml_ext.params import registry
from saxml_ext.params import settings as settings_lib
from saxml_ext.server.lifecycle import entry as entry_lib
from saxml_ext.server.vocabulary import codec

VOCAB_SIZE = 50400


class Model(NamedTuple):
  """The parts of a model except its engine."""

  settings: settings_lib.Settings
  codecs: codec.Codecs


def model(spec: entry_lib.Spec) -> Model:
  """Returns the model of a spec without a checkpoint; the last id is EOS."""
  params = overrides.apply(registry.lookup(spec.model_path), spec.overrides)
  settings = settings_lib.Settings.from_params(
    type(params.__name__, (params,), {'EOS_ID': VOCAB_SIZE - 1})
  )
  ids = codec.IdCodec(VOCAB_SIZE)
  return Model(settings, codec.Codecs(ids, ids, VOCAB_SIZE))
