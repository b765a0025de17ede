"""Explains the flags of other servers.

Users know the flags of vLLM, llama.cpp, TGI and SGLang. The table has those that
they use most, and what does the same here.
"""

from collections.abc import Mapping

# The names of flags, without leading dashes, by the hint for them.
_NAMES = {
  'Name the model without a flag: serve DIRECTORY, serve FILE.gguf, or serve'
  ' ORGANIZATION/MODEL.': 'model m model_path model_id hf hf_repo hfr model_url',
  'Set --quantize=int8 or --quantize=none. FPROP_DTYPE=\'"bfloat16"\' and'
  ' MODEL_DTYPE=\'"bfloat16"\' choose bfloat16.': 'dtype quantization q',
  'Set --max_model_len=N, in tokens.': 'ctx_size c n_ctx context_length'
  ' max_seq_len max_total_tokens max_input_length max_input_tokens',
  'The memory for requests follows from the free memory. Set BATCH_SIZE=N for'
  ' the number of requests at a time, and --max_model_len=N.': 'swap_space',
  'Set --memory_fraction=0.9 on a GPU, and BATCH_SIZE=N for the number of'
  ' requests at a time.': 'gpu_memory_utilization mem_fraction_static'
  ' cuda_memory_fraction',
  'Set BATCH_SIZE=N.': 'max_num_seqs parallel np max_running_requests batch_size'
  ' b max_concurrent_requests max_batch_size',
  'Set ICI_MESH_SHAPE=[1,1,N] to split the model among N devices of this'
  ' machine.': 'tensor_parallel_size tp tp_size num_shard tensor_split ts'
  ' pipeline_parallel_size pp data_parallel_size dp',
  'Set it in each request, or in generation_config.json of the model.': 'temp'
  ' n_predict n predict max_tokens max_new_tokens temperature top_k top_p min_p'
  ' seed s repeat_penalty generation_config override_generation_config',
  'Set the environment variable JAX_PLATFORMS to cpu or cuda to choose the'
  ' device. An accelerator holds all layers.': 'n_gpu_layers ngl gpu_layers'
  ' device dev main_gpu mg',
  'Write keys to a file with //saxml_ext/common/security:api_key, and set'
  ' --api_keys_file.': 'api_key',
  'Set --served_model_name=NAME.': 'alias a',
  'Set --chat_template=PATH.': 'chat_template_file',
  'Set --allowed_origins=URL.': 'cors_allow_origins cors_origins',
  'The tokenizer is read from the directory of the model.': 'tokenizer'
  ' tokenizer_path tokenizer_mode',
  'Code in checkpoints is never run. Omit the flag.': 'trust_remote_code',
  'Merge the adapter first: convert_hf --base=DIR --lora=ADAPTER --pax=OUT, and'
  ' serve OUT.': 'lora lora_modules enable_lora lora_adapters',
  'Set the environment variable HF_HOME.': 'download_dir',
  'Set --flagfile=FILE with one flag per line.': 'config',
  'All cores are used. Start serve with "taskset -c 0-3" to limit them.': 't'
  ' threads threads_batch tb',
  'It has no counterpart here. Omit it.': 'enforce_eager enable_prefix_caching'
  ' enable_chunked_prefill max_num_batched_tokens block_size max_logprobs fa'
  ' flash_attn disable_log_requests disable_log_stats mlock no_mmap jinja cb'
  ' cont_batching uvicorn_log_level enable_auto_tool_choice tool_call_parser'
  ' reasoning_parser speculative_config kv_cache_dtype cache_type_k ctk'
  ' cache_type_v ctv load_format revision',
}
# The hint, without a final period, by the name of the flag.
HINTS: Mapping[str, str] = {
  name: hint.removesuffix('.')
  for hint, names in _NAMES.items()
  for name in names.split()
}
