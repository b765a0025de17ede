"""Runs transformers on PyTorch, the reference implementation, in a worker."""

import torch
import transformers

from benchmarks.workers import service
from benchmarks.workers import torch_engine


class Transformers(torch_engine.TorchEngine):
  """AutoModelForCausalLM of transformers."""

  def convert(self, job: service.Job) -> None:
    """Does nothing, because transformers reads the Hugging Face format."""
    self.kv = job.dtype

  def load_model(self, job: service.Job) -> transformers.PreTrainedModel:
    return transformers.AutoModelForCausalLM.from_pretrained(
      job.model, dtype=getattr(torch, job.dtype)
    ).eval()


if __name__ == '__main__':
  service.serve(Transformers())
