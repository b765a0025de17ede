"""Computes BERT for questions with transformers on PyTorch, in float32.

Other implementations of the bundled model are compared with it.
"""

import numpy as np
from rich import progress
import torch
import transformers

from harness.bert import features as features_lib


def load(model_dir: str) -> transformers.BertForQuestionAnswering:
  """Loads a Hugging Face directory in float32, for inference."""
  model = transformers.BertForQuestionAnswering.from_pretrained(
    model_dir, dtype=torch.float32
  )
  return model.eval()


@torch.inference_mode()
def logits(
  model: transformers.BertForQuestionAnswering,
  features: features_lib.FeatureSet,
  description: str,
) -> dict[int, np.ndarray]:
  """Computes the start and end logits of every feature, without padding.

  Args:
    model: The model that `load` returns.
    features: The features to answer.
    description: The text before the progress bar.

  Returns:
    The logits by the index of the feature: float32 [T, 2], with T tokens.
  """
  by_index = {}
  for index in progress.track(range(len(features)), description):
    length = features.lengths[index]
    ids, types = (
      torch.from_numpy(values[index : index + 1, :length])
      for values in (features.input_ids, features.segment_ids)
    )
    answer = model(input_ids=ids, token_type_ids=types)
    both = torch.stack([answer.start_logits[0], answer.end_logits[0]], -1)
    by_index[index] = both.numpy()
  return by_index
