"""Measures transformers: Llama 8B in bfloat16, a CUDA graph of a decode step.

  python -m benchmarks.gpu_cases.peer 1 8 32

The arguments are batches. Each line of the output is a JSON object. The program
needs torch, transformers and an NVIDIA GPU. It runs as its own process, because
JAX and PyTorch do not return memory to each other.
"""

from collections.abc import Sequence
import importlib
import json
import sys
import time
from typing import Any

_PROMPT, _LENGTH, _STEPS = 256, 512, 64


def main(argv: Sequence[str]) -> None:
  torch = importlib.import_module('torch')
  transformers = importlib.import_module('transformers')
  config = transformers.LlamaConfig(
    num_hidden_layers=32,
    hidden_size=4096,
    intermediate_size=14336,
    num_attention_heads=32,
    num_key_value_heads=8,
    vocab_size=128256,
    max_position_embeddings=8192,
  )
  with torch.inference_mode():
    model = _random_model(torch, transformers, config)
    for text in argv[1:]:
      step = _step_seconds(torch, transformers, model, config, int(text))
      line = {
        'batch': int(text),
        'step_ms': 1e3 * step,
        'decode_tokens_per_s': int(text) / step,
        'version': f'transformers {transformers.__version__}, torch'
        f' {torch.__version__}',
      }
      print(json.dumps(line), flush=True)


def _random_model(torch: Any, transformers: Any, config: Any) -> Any:
  """Returns a model with random weights, made on the GPU."""
  with torch.device('meta'):
    model = transformers.AutoModelForCausalLM.from_config(
      config, attn_implementation='sdpa', dtype=torch.bfloat16
    )
  model = model.to_empty(device='cuda').eval()
  for name, values in model.named_parameters():
    if 'norm' in name:
      values.data.fill_(1.0)
    else:
      values.data.normal_(0, 0.02)
  # The frequencies of positions are no parameters.
  dim = config.hidden_size // config.num_attention_heads
  even = torch.arange(0, dim, 2, device='cuda', dtype=torch.float32)
  for module in model.modules():
    if getattr(module, 'inv_freq', None) is not None:
      module.inv_freq = module.original_inv_freq = 500000.0 ** (-even / dim)
  return model


def _step_seconds(
  torch: Any, transformers: Any, model: Any, config: Any, batch: int
) -> float:
  """Returns the seconds of a decode step after a prompt of random tokens."""
  cache = transformers.StaticCache(config=config, max_cache_len=_LENGTH)
  tokens = torch.randint(2, config.vocab_size, (batch, _PROMPT), device='cuda')

  def call(**inputs: Any) -> Any:
    out = model(
      past_key_values=cache, use_cache=True, logits_to_keep=1, **inputs
    )
    return out.logits[:, -1].argmax(-1, keepdim=True)

  token = call(input_ids=tokens)
  position = torch.full((batch, 1), _PROMPT, device='cuda')

  def step() -> None:
    token.copy_(call(input_ids=token, position_ids=position))
    position.add_(1)

  stream = torch.cuda.Stream()
  stream.wait_stream(torch.cuda.current_stream())
  with torch.cuda.stream(stream):
    for _ in range(3):
      step()
  torch.cuda.current_stream().wait_stream(stream)
  graph = torch.cuda.CUDAGraph()
  with torch.cuda.graph(graph):
    step()
  torch.cuda.synchronize()
  start = time.perf_counter()
  for _ in range(_STEPS):
    graph.replay()
  torch.cuda.synchronize()
  return (time.perf_counter() - start) / _STEPS


if __name__ == '__main__':
  main(sys.argv)
