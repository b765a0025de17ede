"""Runs OpenVINO in a worker, with optimum-intel's version of transformers."""

import os
from typing import Any

from optimum import intel

from benchmarks import models
from benchmarks.workers import service
from benchmarks.workers import torch_engine
from benchmarks.workers import trials
from saxml_ext.common import files

# The settings of OpenVINO's CPU plugin that trials compare for int8. The
# candidates are: the default; 8-bit keys and values with activations rounded in
# groups of several sizes or not at all; and neither of both.
_INT8: tuple[dict[str, str], ...] = (
  {},
  {'KV_CACHE_PRECISION': 'u8', 'DYNAMIC_QUANTIZATION_GROUP_SIZE': '32'},
  {'KV_CACHE_PRECISION': 'u8', 'DYNAMIC_QUANTIZATION_GROUP_SIZE': '128'},
  {'KV_CACHE_PRECISION': 'u8', 'DYNAMIC_QUANTIZATION_GROUP_SIZE': '0'},
  {
    'INFERENCE_PRECISION_HINT': 'f32',
    'KV_CACHE_PRECISION': 'f32',
    'DYNAMIC_QUANTIZATION_GROUP_SIZE': '0',
  },
)


class OpenVINO(torch_engine.TorchEngine):
  """OVModelForCausalLM of optimum-intel; int8 means 8-bit weights."""

  kv = 'int8'  # The default of OpenVINO's CPU plugin.

  def convert(self, job: service.Job) -> None:
    name = f'openvino-{job.dtype}'
    self._path = models.derived(job.cache, job.model, name)
    if not os.path.isdir(self._path):
      self._convert(job)
    # By default, OpenVINO computes float32 models in bfloat16 if the processor
    # supports it.
    self._variant = {'INFERENCE_PRECISION_HINT': 'f32'}
    if job.dtype == 'int8':
      self._variant = trials.fastest(_INT8, lambda v: self._rate(job, v))
    if self._variant.get('KV_CACHE_PRECISION') == 'f32':
      self.kv = 'float32'

  def _convert(self, job: service.Job) -> None:
    # Without this option, large models would get 8-bit weights by default.
    options: dict[str, Any] = {'load_in_8bit': False}
    if job.dtype == 'int8':
      options = {
        'quantization_config': intel.OVWeightQuantizationConfig(bits=8)
      }
    model = intel.OVModelForCausalLM.from_pretrained(
      job.model, export=True, compile=False, **options
    )
    with files.new_directory(self._path) as unfinished:
      model.save_pretrained(unfinished)

  def load_model(self, job: service.Job) -> intel.OVModelForCausalLM:
    return self._open(self._variant)

  def prepare(self) -> str:
    words = [f'{name}={value}' for name, value in self._variant.items()]
    return ', '.join([*words, super().prepare()])

  def _rate(self, job: service.Job, variant: dict[str, str]) -> float:
    """Returns the tokens per CPU second of a variant, from a short trial."""
    self._set_up(job)
    self._model = self._open(variant)
    requests = trials.sample(job.requests)
    # The first call compiles and allocates memory, so it is not measured.
    self._batch(requests[:1])
    return trials.rate([requests], self._batch)

  def _open(self, variant: dict[str, str]) -> intel.OVModelForCausalLM:
    settings = {
      'INFERENCE_NUM_THREADS': self._job.threads,
      'NUM_STREAMS': '1',
      'PERFORMANCE_HINT': 'LATENCY',
      **variant,
    }
    return intel.OVModelForCausalLM.from_pretrained(
      self._path, ov_config=settings
    )


if __name__ == '__main__':
  service.serve(OpenVINO())
