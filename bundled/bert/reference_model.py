"""BERT for questions as transformers on PyTorch computes it, in float32.

What other implementations of the bundled model are compared with.
"""

import numpy as np
from rich import progress
import torch
import transformers

from harness.bert import features as features_lib


def load(model_dir: str) -> transformers.BertForQuestionAnswering:
  """Loads an HF directory in float32, for inference."""
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
  """Computes start and end logits of every feature, one at a time and unpadded.

  Args:
    model: The model that `load` returns.
    features: The features to answer.
    description: The text before the progress bar.

  Returns:
    float32 [T, 2] by index of the feature, with T its number of tokens.
  """
  found = {}
  for index in progress.track(range(len(features)), description):
    length = features.lengths[index]
    ids, types = (
      torch.from_numpy(values[index : index + 1, :length])
      for values in (features.input_ids, features.segment_ids)
    )
    answer = model(input_ids=ids, token_type_ids=types)
    both = torch.stack([answer.start_logits[0], answer.end_logits[0]], -1)
    found[index] = both.numpy()
  return found
