"""Accepts dashes in flag names, and explains flags of other servers.

Users know the flags of vLLM, llama.cpp, TGI and SGLang. The table has those that
they use most, and what does the same here.
"""

from collections.abc import Mapping, Sequence
import sys

from absl import flags

_NO_COUNTERPART = 'It has no counterpart here. Omit it.'
_LENGTH = 'Set --max_model_len=N, in tokens.'
_MODEL = (
  'Name the model without a flag: serve DIRECTORY, serve FILE.gguf, or serve'
  ' ORGANIZATION/MODEL.'
)
_MESH = (
  'Set ICI_MESH_SHAPE=[1,1,N] to split the model among N devices of this'
  ' machine.'
)
_MEMORY = (
  'The memory for requests follows from the free memory. Set BATCH_SIZE=N for'
  ' the number of requests that are decoded at a time, and --max_model_len=N.'
)
_SLOTS = 'Set BATCH_SIZE=N.'
_REQUEST = 'Set it in each request, or in generation_config.json of the model.'
_DEVICE = (
  'Set the environment variable JAX_PLATFORMS to cpu or cuda to choose the'
  ' device. An accelerator holds all layers.'
)
_TOKENIZER = 'The tokenizer is read from the directory of the model.'

# The hint for each flag, by its names without leading dashes.
_HINTS = {
  'model m model_path model_id hf hf_repo hfr hf_file hff model_url mu': _MODEL,
  'dtype': (
    'Set --quantize=int8 or --quantize=none. Floats are float32 if they fit'
    ' into half of the free memory, else bfloat16; FPROP_DTYPE=\'"bfloat16"\''
    ' and MODEL_DTYPE=\'"bfloat16"\' choose bfloat16.'
  ),
  'quantization q load_format': 'Set --quantize=int8 or --quantize=none.',
  'kv_cache_dtype cache_type_k ctk cache_type_v ctv': _NO_COUNTERPART,
  'ctx_size c n_ctx context_length max_seq_len max_total_tokens': _LENGTH,
  'max_input_length max_input_tokens': _LENGTH,
  'gpu_memory_utilization mem_fraction_static cuda_memory_fraction': _MEMORY,
  'swap_space cpu_offload_gb kv_cache_memory_bytes': _MEMORY,
  'max_num_seqs parallel np max_running_requests': _SLOTS,
  'max_concurrent_requests max_batch_size batch_size b ubatch_size ub': _SLOTS,
  'tensor_parallel_size tp tp_size num_shard tensor_split ts': _MESH,
  'pipeline_parallel_size pp data_parallel_size dp split_mode sm': _MESH,
  'n_gpu_layers ngl gpu_layers device dev main_gpu mg': _DEVICE,
  'n_predict n predict max_tokens max_new_tokens temp temperature': _REQUEST,
  'top_k top_p min_p seed s repeat_penalty': _REQUEST,
  'api_key': (
    'Write keys to a file with //saxml_ext/common/security:api_key, and set'
    ' --api_keys_file.'
  ),
  'alias a served_model_names': 'Set --served_model_name=NAME.',
  'chat_template_file': 'Set --chat_template=PATH.',
  'tokenizer tokenizer_path tokenizer_mode': _TOKENIZER,
  'trust_remote_code': 'Code in checkpoints is never run. Omit the flag.',
  'lora lora_modules enable_lora lora_adapters': (
    'Merge the adapter first: convert_hf --base=DIR --lora=ADAPTER --pax=OUT,'
    ' and serve OUT.'
  ),
  'download_dir': 'Set the environment variable HF_HOME.',
  'revision': 'Download the revision with "hf download", and serve its path.',
  'config': 'Set --flagfile=FILE with one flag per line.',
  'generation_config override_generation_config': (
    'generation_config.json is read from the directory of the model.'
  ),
  'ssl_keyfile ssl_certfile ssl_key_file ssl_cert_file': (
    'Let a proxy terminate TLS; see docs/deploy.md.'
  ),
  'threads t threads_batch tb': (
    'All cores are used. Start serve with "taskset -c 0-3" to limit them.'
  ),
  'cors_allow_origins cors_origins': 'Set --allowed_origins=URL.',
  'allowed_local_media_path limit_mm_per_prompt': _NO_COUNTERPART,
  'enforce_eager enable_prefix_caching enable_chunked_prefill': _NO_COUNTERPART,
  'max_num_batched_tokens block_size max_logprobs': _NO_COUNTERPART,
  'disable_log_requests disable_log_stats flash_attn fa': _NO_COUNTERPART,
  'mlock no_mmap cont_batching cb jinja uvicorn_log_level': _NO_COUNTERPART,
  'enable_auto_tool_choice tool_call_parser': _NO_COUNTERPART,
  'reasoning_parser speculative_config': _NO_COUNTERPART,
}
HINTS: Mapping[str, str] = {
  name: hint for names, hint in _HINTS.items() for name in names.split()
}


def translated(
  argv: Sequence[str], hints: Mapping[str, str] = HINTS
) -> list[str]:
  """Returns a command line whose flag names have underscores, not dashes.

  A flag of another server ends the program with a hint.

  Args:
    argv: The program and its arguments.
    hints: The hint by the name of the flag.
  """
  result = list(argv)
  for index, word in enumerate(argv):
    if word == '--':
      break
    if index == 0 or not word.startswith('-'):
      continue
    name, equals, value = word.lstrip('-').partition('=')
    name = name.replace('-', '_')
    if name in flags.FLAGS or name.removeprefix('no') in flags.FLAGS:
      result[index] = f'--{name}{equals}{value}'
    elif hint := hints.get(name):
      sys.exit(f'serve: {word.partition("=")[0]} is no flag of serve. {hint}')
  return result
