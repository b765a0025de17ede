"""Writes the files of a Llama as Meta distributes them, with PyTorch."""

from collections.abc import Mapping
import json
import os
from typing import Any

import torch

# The parts of tensors' names, and the axis along which files split them.
_AXES = {
  **dict.fromkeys(('wq', 'wk', 'wv', 'w1', 'w3', 'output'), 0),
  **dict.fromkeys(('wo', 'w2'), 1),
}
_NAMES = {
  'model.embed_tokens': 'tok_embeddings',
  'model.norm': 'norm',
  'lm_head': 'output',
  'model.layers.': 'layers.',
  'self_attn.q_proj': 'attention.wq',
  'self_attn.k_proj': 'attention.wk',
  'self_attn.v_proj': 'attention.wv',
  'self_attn.o_proj': 'attention.wo',
  'mlp.gate_proj': 'feed_forward.w1',
  'mlp.down_proj': 'feed_forward.w2',
  'mlp.up_proj': 'feed_forward.w3',
  'input_layernorm': 'attention_norm',
  'post_attention_layernorm': 'ffn_norm',
}


def state_dict(
  tensors: Mapping[str, torch.Tensor], head_dim: int
) -> dict[str, torch.Tensor]:
  """Returns tensors of transformers' Llama under Meta's names.

  Queries and keys are permuted, because Meta rotates neighboring dimensions and
  transformers rotates halves.

  Args:
    tensors: The tensors by transformers' names.
    head_dim: The size of a head.
  """
  renamed = {}
  for name, tensor in tensors.items():
    if name.endswith(('q_proj.weight', 'k_proj.weight')):
      width = tensor.shape[1]
      halves = tensor.reshape(-1, 2, head_dim // 2, width)
      tensor = halves.transpose(1, 2).reshape(-1, width)
    for old, new in _NAMES.items():
      name = name.replace(old, new)
    renamed[name] = tensor
  return renamed


def write(
  directory: str,
  tensors: Mapping[str, torch.Tensor],
  params: Mapping[str, Any] | None,
  shards: int = 1,
  embedding_axis: int = 1,
) -> None:
  """Writes consolidated.NN.pth and params.json.

  Args:
    directory: The directory, which must exist.
    tensors: The whole tensors by Meta's names.
    params: The contents of params.json; None to write no such file.
    shards: The number of files.
    embedding_axis: The axis along which the embedding is split.
  """
  axes = {**_AXES, 'tok_embeddings': embedding_axis}
  parts: list[dict[str, torch.Tensor]] = [{} for _ in range(shards)]
  for name, tensor in tensors.items():
    axis = axes.get(name.split('.')[-2])
    split = (
      [tensor] * shards if axis is None else tensor.chunk(shards, dim=axis)
    )
    for part, piece in zip(parts, split, strict=True):
      part[name] = piece.clone()
  for index, part in enumerate(parts):
    torch.save(part, os.path.join(directory, f'consolidated.{index:02d}.pth'))
  if params is not None:
    with open(os.path.join(directory, 'params.json'), 'w') as file:
      json.dump(dict(params), file)
