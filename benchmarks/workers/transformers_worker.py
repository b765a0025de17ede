"""Worker: transformers on PyTorch, the implementation of reference."""

import torch
import transformers

from benchmarks.workers import service
from benchmarks.workers import torch_engine


class Transformers(torch_engine.TorchEngine):
  """GPTJForCausalLM."""

  def convert(self, job: service.Job) -> None:
    """Does nothing: transformers reads its own format."""

  def load_model(self, job: service.Job) -> transformers.GPTJForCausalLM:
    return transformers.GPTJForCausalLM.from_pretrained(
      job.model, dtype=getattr(torch, job.dtype)
    ).eval()


if __name__ == '__main__':
  service.serve(Transformers())
