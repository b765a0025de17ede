"""Pax experiments of a random language model, written as users write them.

`save` does not train a model. It uses paxml to store the random initial
variables of praxis.
"""

from saxml_ext.pax import compat

compat.install_paxml()  # Must precede imports of paxml.

import jax
from paxml import base_experiment
from paxml import checkpoint_types
from paxml import checkpoints
from paxml import tasks_lib
from praxis import base_layer
from praxis import decoder_hparams
from praxis import optimizers
from praxis import pax_fiddle
from praxis import py_utils
from praxis import schedules
from praxis.layers import embedding_softmax
from praxis.layers import models
from praxis.layers import transformer_models
from praxis.layers import transformers

VOCAB_SIZE = 48
EOS_ID = 3


class Plain(base_experiment.BaseExperiment):
  """An experiment without serving attributes, so its decoder defines them."""

  def datasets(self):
    return []

  def decoder(self) -> decoder_hparams.DecoderHParams:
    return decoder_hparams.GreedyDecoderHParams(
      seqlen=20, max_decode_steps=8, eos_id=EOS_ID
    )

  def task(self) -> pax_fiddle.Config[tasks_lib.SingleTask]:
    stack = pax_fiddle.Config(
      transformers.StackedTransformer,
      num_layers=2,
      num_heads=2,
      hidden_dims=32,
    )
    lm = pax_fiddle.Config(
      transformer_models.TransformerLm,
      model_dims=16,
      vocab_size=VOCAB_SIZE,
      stacked_transformer_tpl=stack,
      separate_embedding_tpl=pax_fiddle.Config(embedding_softmax.Embedding),
      softmax_tpl=pax_fiddle.Config(embedding_softmax.FullSoftmax),
      # The deviation is larger than praxis' default, so that answers depend on
      # prompts.
      params_init=base_layer.WeightInit.Gaussian(0.5),
    )
    task = pax_fiddle.Config(
      tasks_lib.SingleTask,
      name='tiny',
      model=pax_fiddle.Config(
        models.LanguageModel, lm_tpl=lm, decoder_tpl=self.decoder()
      ),
    )
    task.train.learner.loss_name = 'total_loss'
    task.train.learner.optimizer = pax_fiddle.Config(
      optimizers.Adam,
      learning_rate=1e-3,
      lr_schedule=pax_fiddle.Config(schedules.Constant),
    )
    return task


class Beams(Plain):
  """An experiment with serving attributes, by Sax's convention."""

  BATCH_SIZE = 2
  MAX_LIVE_BATCHES = 8
  INPUT_SEQ_LEN = 12
  BUCKET_KEYS = [6, 12]
  MAX_DECODE_STEPS = 8
  USE_BEAM_SEARCH = True
  BEAM_SIZE = 3
  LENGTH_NORM_ALPHA = 0.6
  EOS_ID = EOS_ID
  TOKENIZED_INPUT = True
  TOKENIZED_OUTPUT = True


class Samples(Beams):
  """An experiment with samples and all options that a request may set."""

  USE_BEAM_SEARCH = False
  NUM_SAMPLES = 2
  TOP_K = 10
  TEMPERATURE = 1.0
  EXTRA_INPUTS = {
    'temperature': 1.0,
    'per_example_max_decode_steps': 8,
    'per_example_top_k': 10,
    'per_example_top_p': 1.0,
    'gumbel_prng_key': 15753,
  }


class Unfinished(base_experiment.BaseExperiment):
  """An experiment without a task."""

  def datasets(self):
    return []


def save(directory: str, ocdbt: bool = False) -> None:
  """Saves an initial train state, including the optimizer, as paxml does."""
  task = base_layer.instantiate(Plain().task())
  ids = jax.numpy.zeros((1, 4), 'int32')
  weights = jax.numpy.ones((1, 4))
  batch = py_utils.NestedMap(
    ids=ids,
    labels=ids,
    paddings=1 - weights,
    weights=weights,
    segment_ids=ids + 1,
    segment_pos=ids,
  )
  context = base_layer.JaxContext.HParams(do_eval=True)
  with base_layer.JaxContext.new_context(hparams=context):
    variables = task.model.init(jax.random.key(4), batch)
  state = task.create_train_state(
    variables, task.model.abstract_init_with_metadata(batch)
  )
  manager = checkpoints.save_checkpoint(
    state,
    directory,
    checkpoint_type=checkpoint_types.CheckpointType.GDA,
    tensorstore_use_ocdbt=ocdbt,
  )
  manager.wait_until_finished()
