"""Restores the variables of a Pax experiment's model with paxml."""

import dataclasses
import os
from typing import Any

from saxml_ext.pax import checkpoint
from saxml_ext.pax import compat
from saxml_ext.pax import errors
from saxml_ext.pax import store

compat.install_paxml()  # Before the first import of paxml.

import jax
from paxml import base_experiment
from paxml import checkpoint_types
from paxml import checkpoints
from praxis import base_layer
from praxis import py_utils
from praxis.layers import models

# The sizes of the batch that determines the shapes of the model's variables. No
# variable of a language model depends on them.
_BATCH, _LENGTH = 1, 8


@dataclasses.dataclass(frozen=True)
class Restored:
  """A model and its variables.

  Attributes:
    model: The praxis layer, without variables.
    variables: The tree of arrays of each collection (such as `params`), as
      `model.apply` takes them.
  """

  model: models.LanguageModel
  variables: dict[str, Any]


def restore(
  experiment: base_experiment.BaseExperiment, checkpoint_path: str
) -> Restored:
  """Restores a checkpoint into the model of an experiment.

  Data for training only, such as the optimizer's state, is not read.

  Args:
    experiment: The experiment, whose model must be a LanguageModel.
    checkpoint_path: The checkpoint, see `checkpoint.find_step_dir`. The newest
      step is restored unless the path names a step.

  Raises:
    errors.CheckpointError: There is no complete checkpoint, or its variables do
      not match the model.
    TypeError: The experiment's model is not a LanguageModel.
  """
  step_dir = checkpoint.find_step_dir(checkpoint_path)
  task = base_layer.instantiate(experiment.task())
  if not isinstance(task.model, models.LanguageModel):
    raise TypeError(
      f'the model of {type(experiment).__name__} is a'
      f' {type(task.model).__name__}. Expected a praxis LanguageModel.'
    )
  shapes = task.create_train_state_unpadded_shapes(
    task.model.abstract_init_with_metadata(example(_BATCH, _LENGTH)),
    discard_opt_states=True,
  )
  state_dir = os.path.join(step_dir, 'state')
  store.check_regular(state_dir)
  is_ocdbt = store.is_ocdbt(state_dir)
  try:
    state = checkpoints.restore_checkpoint(
      shapes,
      os.path.dirname(step_dir),
      checkpoint_type=checkpoint_types.CheckpointType.GDA,
      step=int(step_dir.rpartition('_')[2]),  # From checkpoint_<step>.
      state_unpadded_shape_dtype_struct=shapes,
      enforce_restore_shape_check=True,
      tensorstore_use_ocdbt=is_ocdbt,
      # The checkpoint may contain more arrays than requested.
      restore_transformations={} if is_ocdbt else None,
    )
  except (ValueError, KeyError, OSError) as e:
    raise errors.CheckpointError(
      f'{step_dir} is not a checkpoint of {type(experiment).__name__}: {e}.'
      ' Use the checkpoint that these serving params were made for.'
    ) from e
  return Restored(task.model, state.mdl_vars)


def example(batch: int, length: int) -> py_utils.NestedMap:
  """Returns the shapes of a LanguageModel's inputs, [batch, length]."""
  ids = jax.ShapeDtypeStruct((batch, length), 'int32')
  weights = jax.ShapeDtypeStruct((batch, length), 'float32')
  return py_utils.NestedMap(
    ids=ids,
    labels=ids,
    paddings=weights,
    weights=weights,
    segment_ids=ids,
    segment_pos=ids,
    inputs_indicator=ids,
  )
