"""Worker: OpenVINO through optimum-intel, which brings its own transformers."""

import os
import shutil
from typing import Any

from optimum import intel

from saxml_ext.engine.benchmark import models
from saxml_ext.engine.benchmark import service
from saxml_ext.engine.benchmark import torch_engine


class OpenVINO(torch_engine.TorchEngine):
  """OVModelForCausalLM; int8 are weights of 8 bits."""

  def convert(self, job: service.Job) -> None:
    name = f"openvino-{job.dtype}"
    self._path = models.derived(job.cache, job.model, name)
    if os.path.isdir(self._path):
      return
    # Without saying so, large models would get 8 bits by themselves.
    options: dict[str, Any] = {"load_in_8bit": False}
    if job.dtype == "int8":
      options = {
          "quantization_config": intel.OVWeightQuantizationConfig(bits=8)
      }
    scratch = self._path + ".partial"
    shutil.rmtree(scratch, ignore_errors=True)
    model = intel.OVModelForCausalLM.from_pretrained(
        job.model, export=True, compile=False, **options
    )
    model.save_pretrained(scratch)
    os.rename(scratch, self._path)

  def load_model(self, job: service.Job) -> intel.OVModelForCausalLM:
    settings = {
        "INFERENCE_NUM_THREADS": job.threads,
        "NUM_STREAMS": "1",
        "PERFORMANCE_HINT": "LATENCY",
    }
    if job.dtype == "float32":
      # Its own choice is bfloat16 where the processor has that.
      settings["INFERENCE_PRECISION_HINT"] = "f32"
    return intel.OVModelForCausalLM.from_pretrained(
        self._path, ov_config=settings
    )


if __name__ == "__main__":
  service.serve(OpenVINO())
