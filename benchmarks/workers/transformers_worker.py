"""Runs transformers on PyTorch, the reference implementation, in a worker."""

import torch
import transformers

from benchmarks.workers import service
from benchmarks.workers import torch_engine


class Transformers(torch_engine.TorchEngine):
  """GPTJForCausalLM of transformers."""

  def convert(self, job: service.Job) -> None:
    """Does nothing, because transformers reads the Hugging Face format."""

  def load_model(self, job: service.Job) -> transformers.GPTJForCausalLM:
    return transformers.GPTJForCausalLM.from_pretrained(
      job.model, dtype=getattr(torch, job.dtype)
    ).eval()


if __name__ == '__main__':
  service.serve(Transformers())
