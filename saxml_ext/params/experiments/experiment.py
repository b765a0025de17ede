"""Makes experiments of serving params, which paxml itself can run.

    cls = experiment.of(gptj.TinyTokenizedFP32, '/tmp/pax')
    model, variables = restore.restore(cls(), '/tmp/pax')

The class derives from the serving params and from paxml's BaseExperiment. The
model of its task is the praxis LanguageModel of the family. If the params set
QUANTIZATION, the model has praxis' quantized layers, and the checkpoint must be
an INT8 one.

Praxis' layers compare to this server's engine as follows:

- QUANTIZATION 'int8_weights' is the same computation.
- With 'int8', praxis has one scale for the activations of the whole batch
  before q, k and v. The engine has one scale per row. Elsewhere, both have one
  scale per row.
- Beams follow praxis' rule, see `saxml_ext.engine.search.pax_beam`.

The import of this module imports paxml, which takes seconds.
"""

from collections.abc import Mapping
import dataclasses
from typing import TypeAlias

from saxml_ext.common import errors
from saxml_ext.engine import config as config_lib
from saxml_ext.engine import variables as variables_lib
from saxml_ext.families import praxis_models
from saxml_ext.families import servable
from saxml_ext.params import settings as settings_lib
from saxml_ext.params import template
from saxml_ext.params.experiments import pax_serving
from saxml_ext.pax import checkpoint
from saxml_ext.pax import compat
from saxml_ext.pax import description
from saxml_ext.pax import metadata

compat.install_paxml()  # Must precede imports of paxml.

import jax.numpy as jnp
from paxml import base_experiment
from paxml import tasks_lib
from praxis import optimizers
from praxis import pax_fiddle
from praxis import schedules
from praxis.layers import quantization
from praxis.layers.quantization import quantization_hparams
from praxis.layers.quantization import quantize

Config: TypeAlias = pax_fiddle.Config
# The learning rate of the optimizer that a task must have. This code trains
# nothing; an experiment for training sets its own learner.
_LEARNING_RATE = 1e-5
_NORM = 'params.lm.final_ln.scale'


def of(  # keep: docs/pax.md names it
  params: type[template.ServableLMParams], checkpoint_path: str | None = None
) -> type[base_experiment.BaseExperiment]:
  """Returns the experiment of these serving params.

  Args:
    params: The serving params, of a family that has a praxis model.
    checkpoint_path: The path of a checkpoint. It provides the values that the
      params do not set: sizes, end ids and the type of the stored variables.

  Raises:
    errors.InvalidArgument: Neither of them has a size, or the params are not
      usable.
    saxml_ext.pax.errors.CheckpointError: The checkpoint cannot be read.
  """
  settings, config, dtype, repeated = _read(params, checkpoint_path)

  # mypy does not support a base class that is chosen at run time.
  class Experiment(params, base_experiment.BaseExperiment):  # type: ignore[valid-type, misc]
    """A model to serve; it has no data for training or evaluation."""

    def datasets(self) -> list[pax_fiddle.Config]:
      return []

    def task(self) -> pax_fiddle.Config[tasks_lib.SingleTask]:
      task = Config(
        tasks_lib.SingleTask,
        name='task',
        model=_model(settings, config, repeated),
      )
      task.model.dtype = jnp.dtype(dtype)
      task.model.fprop_dtype = jnp.dtype(settings.dtype)
      task.model.decoder_tpl = pax_serving.hparams(settings)
      task.train.learner.loss_name = 'total_loss'
      task.train.learner.optimizer = Config(
        optimizers.Adam,
        learning_rate=_LEARNING_RATE,
        lr_schedule=Config(schedules.Constant),
      )
      return task

  Experiment.__name__ = Experiment.__qualname__ = params.__name__
  return Experiment


def _read(
  params: type[template.ServableLMParams], checkpoint_path: str | None
) -> tuple[settings_lib.Settings, config_lib.ModelConfig, str, bool]:
  """Reads the params and, if there is one, the checkpoint.

  Returns:
    The settings, the sizes, the type of the variables, and True if the layers
    are stacked in the checkpoint.
  """
  settings = settings_lib.Settings.from_params(params)
  stored = description.Description()
  specs: Mapping[str, metadata.ArraySpec] = {}
  if checkpoint_path is not None:
    stored = description.read(checkpoint_path)
    specs = checkpoint.Reader(checkpoint_path).specs
  settings = settings.completed(stored)
  if specs and settings.rotary_dim is not None:
    model = config_lib.ModelConfig.from_pax(
      specs, settings.rotary_dim, architecture=settings.family.architecture
    )
    sizes = {name: getattr(model, name) for name in servable.SIZES}
    settings = dataclasses.replace(settings, shape={**sizes, **settings.shape})
  epsilon = settings.ln_epsilon or config_lib.ModelConfig.ln_epsilon
  try:
    config = dataclasses.replace(settings, ln_epsilon=epsilon).model_config()
  except ValueError as e:
    raise errors.InvalidArgument(f'{params.__name__}: {e}') from e
  dtype = specs[_NORM].dtype if _NORM in specs else params.MODEL_DTYPE
  return settings, config, dtype, variables_lib.is_repeated(specs)


def _model(
  settings: settings_lib.Settings,
  config: config_lib.ModelConfig,
  repeated: bool,
) -> pax_fiddle.Config:
  """Returns the LanguageModel, with quantized layers if configured."""
  make = praxis_models.MODELS.get(settings.family.name)
  if make is None:
    raise errors.Unimplemented(
      f'this server has no praxis model of the family {settings.family.name}'
    )
  model = make(config, repeated)
  if settings.quantization is None:
    return model
  if settings.quantization in ('int4', 'fp8'):
    raise errors.Unimplemented(
      f'experiments have no {settings.quantization} matrices. Publish with'
      " QUANTIZATION='int8'."
    )
  activations = settings.quantization == 'int8'
  quantize.set_transformer_quantization(
    model,
    weight_quant_only=not activations,
    num_bits_act=8 if activations else None,
    use_symmetric_act=True if activations else None,
  )
  if settings.quantize_head:
    # praxis' own function only supports other kinds of softmax layers.
    act_params = quantization_hparams.ActQuantizationParams()
    model.lm_tpl.softmax_tpl.feed_forward_tpl.linear_tpl = Config(
      quantization.Linear,
      quantization=quantization_hparams.QuantizationParams(
        act_params=act_params if activations else None
      ),
    )
  return model
