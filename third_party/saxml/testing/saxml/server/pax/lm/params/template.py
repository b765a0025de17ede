"""Stand-in for upstream's serving template.

`CommonServingTemplate` has upstream's attributes and defaults, those left out
that concern embedding, gradients and vocabularies of other models. All of
these are in the versions of late 2023 to 2024 that could be looked at.
"""

import abc
import functools

from saxml.server import servable_model_registry


class CommonServingTemplate:
  """Attributes that a servable class may set."""

  BATCH_SIZE = 1
  BATCH_WAIT_SECS = None
  BEAM_SEARCH_EARLY_EXIT = False
  BEAM_SIZE = 4
  BUCKET_KEYS = None
  DECODE_MESH_TRANSPOSE = None
  EMB_LOOKUP_STYLE = 'index'
  ENABLE_GENERATE = True
  ENABLE_GENERATE_STREAM = False
  EOS_ID = 1
  EOS_PADDING_AND_NO_SOS = False
  EXTRA_INPUTS = {'temperature': 0.1}
  EXTRA_INPUTS_DTYPES = {}
  FPROP_FOR_PREFIX = False
  GENERATE_ONLY = False
  GLOBAL_NORMALIZE = False
  ICI_MESH_SHAPE = [1, 1, 8]
  INCLUDE_PREFIX_IN_RESULT = False
  INPUT_SEQ_LEN = 256
  LENGTH_NORM_ALPHA = 0.8
  MAX_DECODE_STEPS = 32
  MAX_LIVE_BATCHES = 4
  MAX_SEQ_LEN = None
  MIN_DECODE_STEPS = 0
  NUM_SAMPLES = 2
  PREPEND_SOS = True
  SCORE_EXTRA_INPUTS = {}
  SCORE_ONLY = False
  SLICE_LEFT = True
  SORT_SAMPLES = True
  SOS_ID = 0
  SPM_MODEL = None
  STOP_TOKEN_IDS = None
  STREAM_INTERVAL_STEPS = 1
  SUFFIX_SEQ_LEN = 0
  SUPPORT_LAZY_PREFIX_BROADCAST = True
  TOKENIZED_INPUT = False
  TOKENIZED_OUTPUT = False
  TOKENS_PER_BEAM = None
  TOP_K = 40
  TOP_K_RECALL_TARGET = 1.0
  USE_BEAM_SEARCH = False
  USE_MATMUL_BEAM_SHUFFLE = False
  USE_TOP_K_FOR_LOGPROBS = False
  VOCABULARY_CLASS = None
  VOCABULARY_PATH = None
  VOCAB_SIZE = 32000

  @classmethod
  def serving_mesh_shape(cls):
    return cls.ICI_MESH_SHAPE


class ServingTemplate(CommonServingTemplate, metaclass=abc.ABCMeta):
  """What the server asks of a servable class."""

  @abc.abstractmethod
  def task(self):
    """The Pax task."""

  @classmethod
  def sax_registration_name(cls):
    return None

  def compiler_options(self):
    return None


def make_servable(servable_class=ServingTemplate):
  """A decorator that gives a Pax experiment the attributes of a template."""

  def decorate(experiment):
    @functools.wraps(experiment, updated=())
    class Servable(experiment, servable_class):

      @classmethod
      def sax_registration_name(cls):
        # As upstream's: the experiment's name, not inherited by subclasses.
        if cls is Servable:
          return servable_model_registry.full_registration_name(experiment)
        return None

    return Servable

  return decorate
