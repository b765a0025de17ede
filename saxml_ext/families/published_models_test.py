"""Tests that the config.json of published models is read.

The tables have the values of the models' files by name. A number of parameters
is that of the model's page or of transformers.
"""

import json

from absl.testing import absltest
from absl.testing import parameterized

from saxml_ext.families import all as families
from saxml_ext.families import hf_config
from saxml_ext.pax import errors

# Columns: name, parameters (- if unknown), layers, width, heads, key heads,
# hidden, vocabulary, positions, rope_theta, further entries. A `-` is null.
_LLAMA = """
llama-7b 6738415616 32 4096 32 - 11008 32000 2048 - "rms_norm_eps":1e-6,"pad_token_id":-1,"bos_token_id":0,"eos_token_id":1
llama-13b 13015864320 40 5120 40 - 13824 32000 2048 - "rms_norm_eps":1e-6,"pad_token_id":-1
llama-30b 32528943616 60 6656 52 - 17920 32000 2048 - "rms_norm_eps":1e-6,"pad_token_id":-1
llama-65b 65285660672 80 8192 64 - 22016 32000 2048 - "rms_norm_eps":1e-5,"pad_token_id":-1
vicuna-7b-v1.3 6738415616 32 4096 32 - 11008 32000 2048 - "rms_norm_eps":1e-6,"pad_token_id":0
vicuna-7b-v1.5-16k 6738415616 32 4096 32 32 11008 32000 4096 - "max_sequence_length":16384,"rope_scaling":{"factor":4.0,"type":"linear"}
Llama-2-7b-hf 6738415616 32 4096 32 32 11008 32000 4096 - "pretraining_tp":1,"rope_scaling":null
Llama-2-13b-hf 13015864320 40 5120 40 40 13824 32000 4096 - "rope_scaling":null
Llama-2-70b-hf 68976648192 80 8192 64 8 28672 32000 4096 - "rope_scaling":null
CodeLlama-7b-hf 6738546688 32 4096 32 32 11008 32016 16384 1000000 "rope_scaling":null
CodeLlama-34b-hf 33743970304 48 8192 64 8 22016 32000 16384 1000000 "rope_scaling":null
Meta-Llama-3-8B 8030261248 32 4096 32 8 14336 128256 8192 500000.0 "attention_bias":false,"rope_scaling":null,"eos_token_id":128001
Meta-Llama-3-70B 70553706496 80 8192 64 8 28672 128256 8192 500000.0 "attention_bias":false,"eos_token_id":128001
Llama-3.1-8B-Instruct 8030261248 32 4096 32 8 14336 128256 131072 500000.0 "eos_token_id":[128001,128008,128009],"mlp_bias":false,"rope_scaling":{"factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":8192,"rope_type":"llama3"}
Llama-3.1-405B 405853388800 126 16384 128 8 53248 128256 131072 500000.0 "rope_scaling":{"factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":8192,"rope_type":"llama3"}
Llama-3.2-1B 1235814400 16 2048 32 8 8192 128256 131072 500000.0 "head_dim":64,"tie_word_embeddings":true,"rope_scaling":{"factor":32.0,"high_freq_factor":4.0,"low_freq_factor":1.0,"original_max_position_embeddings":8192,"rope_type":"llama3"}
Llama-3.2-3B 3212749824 28 3072 24 8 8192 128256 131072 500000.0 "head_dim":128,"tie_word_embeddings":true,"rope_scaling":{"factor":32.0,"high_freq_factor":4.0,"low_freq_factor":1.0,"original_max_position_embeddings":8192,"rope_type":"llama3"}
Llama-3.3-70B-Instruct 70553706496 80 8192 64 8 28672 128256 131072 500000.0 "head_dim":128,"rope_scaling":{"factor":8.0,"high_freq_factor":4.0,"low_freq_factor":1.0,"original_max_position_embeddings":8192,"rope_type":"llama3"}
Llama-3-8B-Instruct-Gradient-1048k 8030261248 32 4096 32 8 14336 128256 1048576 3580165449.0 "rope_scaling":null
Llama-3-8B-Instruct-Gradient-4194k 8030261248 32 4096 32 8 14336 128256 4194304 45200000000.0 "rope_scaling":null
TinyLlama-1.1B-Chat-v1.0 1100048384 22 2048 32 4 5632 32000 2048 10000.0 "attention_bias":false
SmolLM-135M 134515008 30 576 9 3 1536 49152 2048 10000.0 "tie_word_embeddings":true,"bos_token_id":0,"eos_token_id":0
SmolLM-360M 361821120 32 960 15 5 2560 49152 2048 10000.0 "tie_word_embeddings":true
SmolLM-1.7B 1711376384 24 2048 32 32 8192 49152 2048 10000.0 "tie_word_embeddings":true
SmolLM2-135M-Instruct 134515008 30 576 9 3 1536 49152 8192 100000 "tie_word_embeddings":true,"is_llama_config":true,"rope_interleaved":false,"pad_token_id":2,"rope_scaling":null
SmolLM2-1.7B-Instruct 1711376384 24 2048 32 32 8192 49152 8192 130000 "tie_word_embeddings":true,"rope_scaling":null
Yi-6B 6061035520 32 4096 32 4 11008 64000 4096 5000000.0 "pad_token_id":0
Yi-34B-200K 34388917248 60 7168 56 8 20480 64000 200000 10000000.0 "pad_token_id":0
Yi-1.5-9B 8829407232 48 4096 32 4 11008 64000 4096 5000000.0 "pad_token_id":0
deepseek-llm-7b-base 6910365696 30 4096 32 32 11008 102400 4096 10000.0 "bos_token_id":100000,"eos_token_id":100001
deepseek-llm-67b-base - 95 8192 64 8 22016 102400 4096 10000.0 "bos_token_id":100000,"eos_token_id":100001
deepseek-coder-1.3b-base 1346471936 24 2048 16 16 5504 32256 16384 100000 "rope_scaling":{"factor":4.0,"type":"linear"},"bos_token_id":32013
deepseek-coder-6.7b-instruct 6740512768 32 4096 32 32 11008 32256 16384 100000 "rope_scaling":{"factor":4.0,"type":"linear"}
deepseek-coder-33b-base 33342991360 62 7168 56 8 19200 32256 16384 100000 "rope_scaling":{"factor":4.0,"type":"linear"}
DeepSeek-R1-Distill-Llama-8B 8030261248 32 4096 32 8 14336 128256 131072 500000.0 "rope_scaling":{"factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":8192,"rope_type":"llama3"}
open_llama_3b 3426473600 26 3200 32 - 8640 32000 2048 - "rms_norm_eps":1e-6,"pad_token_id":0
Falcon3-1B-Base 1669408768 18 2048 8 4 8192 131072 4096 1000042 "head_dim":256,"activation":"swiglu"
LWM-Text-1M 6738415616 32 4096 32 32 11008 32000 1048576 50000000 "rope_scaling":null
EuroLLM-1.7B - 24 2048 16 8 5632 128000 4096 10000.0 "tie_word_embeddings":false
h2o-danube3-4b-base - 24 3840 32 8 10240 32000 8192 100000 "head_dim":120
"""
_QWEN2 = """
Qwen1.5-0.5B 463987712 24 1024 16 16 2816 151936 32768 1000000.0 "tie_word_embeddings":true,"use_sliding_window":false,"sliding_window":32768,"max_window_layers":21
CodeQwen1.5-7B 7250284544 32 4096 32 4 13440 92416 65536 1000000 "use_sliding_window":false,"sliding_window":65536,"max_window_layers":28,"rms_norm_eps":1e-5
Qwen2-0.5B 494032768 24 896 14 2 4864 151936 131072 1000000.0 "tie_word_embeddings":true,"use_sliding_window":false,"sliding_window":131072,"max_window_layers":24,"use_mrope":false
Qwen2-7B-Instruct 7615616512 28 3584 28 4 18944 152064 32768 1000000.0 "use_sliding_window":false,"sliding_window":131072,"max_window_layers":28
Qwen2.5-0.5B-Instruct 494032768 24 896 14 2 4864 151936 32768 1000000.0 "tie_word_embeddings":true,"use_sliding_window":false,"sliding_window":32768,"max_window_layers":21,"eos_token_id":151645
Qwen2.5-1.5B 1543714304 28 1536 12 2 8960 151936 131072 1000000.0 "tie_word_embeddings":true,"use_sliding_window":false,"sliding_window":131072,"max_window_layers":28,"use_mrope":false
Qwen2.5-3B 3085938688 36 2048 16 2 11008 151936 32768 1000000.0 "tie_word_embeddings":true,"use_sliding_window":false,"sliding_window":32768,"max_window_layers":36
Qwen2.5-7B-Instruct 7615616512 28 3584 28 4 18944 152064 32768 1000000.0 "use_sliding_window":false,"sliding_window":131072,"max_window_layers":28
Qwen2.5-14B 14770033664 48 5120 40 8 13824 152064 131072 1000000.0 "use_sliding_window":false,"sliding_window":131072,"max_window_layers":48,"rms_norm_eps":1e-5
Qwen2.5-32B 32763876352 64 5120 40 8 27648 152064 131072 1000000.0 "use_sliding_window":false,"sliding_window":131072,"max_window_layers":64,"rms_norm_eps":1e-5
Qwen2.5-72B 72706203648 80 8192 64 8 29568 152064 131072 1000000.0 "use_sliding_window":false,"sliding_window":131072,"max_window_layers":80,"rms_norm_eps":1e-5
Qwen2.5-Math-7B 7615616512 28 3584 28 4 18944 152064 4096 10000 "use_sliding_window":false,"sliding_window":4096,"max_window_layers":28
Qwen2.5-Coder-7B-Instruct 7615616512 28 3584 28 4 18944 152064 32768 1000000.0 "use_sliding_window":false,"sliding_window":131072,"max_window_layers":28
DeepSeek-R1-Distill-Qwen-1.5B 1777088000 28 1536 12 2 8960 151936 131072 10000 "tie_word_embeddings":false,"use_sliding_window":false,"sliding_window":4096,"max_window_layers":21,"use_mrope":false
"""
# The context of the first is lowered to its window.
# The context of the first is lowered to its window.
_MISTRAL = """
Mistral-7B-v0.1 7241732096 32 4096 32 8 14336 32000 4096 10000.0 "sliding_window":4096,"rms_norm_eps":1e-5
Mistral-7B-Instruct-v0.2 7241732096 32 4096 32 8 14336 32000 32768 1000000.0 "sliding_window":null
Mistral-7B-v0.3 7248023552 32 4096 32 8 14336 32768 32768 1000000.0 "sliding_window":null
Mistral-Nemo-Base-2407 12247782400 40 5120 32 8 14336 131072 128000 1000000.0 "head_dim":128,"sliding_window":null
Mistral-Small-24B-Base-2501 23572403200 40 5120 32 8 32768 131072 32768 100000000.0 "head_dim":128,"sliding_window":null
"""
_QWEN3 = """
Qwen3-0.6B 596049920 28 1024 16 8 3072 151936 40960 1000000 "head_dim":128,"tie_word_embeddings":true,"use_sliding_window":false,"sliding_window":null,"max_window_layers":28,"attention_bias":false,"rms_norm_eps":1e-6
Qwen3-1.7B - 28 2048 16 8 6144 151936 40960 1000000 "head_dim":128,"tie_word_embeddings":true,"use_sliding_window":false,"sliding_window":null
Qwen3-4B 4022468096 36 2560 32 8 9728 151936 40960 1000000 "head_dim":128,"tie_word_embeddings":true,"use_sliding_window":false,"sliding_window":null
Qwen3-8B 8190735360 36 4096 32 8 12288 151936 40960 1000000 "head_dim":128,"tie_word_embeddings":false,"use_sliding_window":false,"sliding_window":null
Qwen3-32B - 64 5120 64 8 25600 151936 40960 1000000 "head_dim":128,"tie_word_embeddings":false,"use_sliding_window":false,"sliding_window":null
Qwen3-8B-131k - 36 4096 32 8 12288 151936 131072 1000000 "head_dim":128,"rope_scaling":{"rope_type":"yarn","factor":4.0,"original_max_position_embeddings":32768}
"""
_PHI3 = """
Phi-3-medium-4k-window 13960238080 40 5120 40 10 17920 32064 2047 10000.0 "sliding_window":2047,"rope_scaling":null,"original_max_position_embeddings":4096
phi-4 14659507200 40 5120 40 10 17920 100352 16384 250000 "sliding_window":null,"rope_scaling":null,"original_max_position_embeddings":16384,"tie_word_embeddings":false
"""
_GRANITE = """
granite-3.3-2b-instruct 2533539840 40 2048 32 8 8192 49159 131072 10000000.0 "attention_bias":false,"attention_multiplier":0.015625,"embedding_multiplier":12.0,"logits_scaling":8.0,"mlp_bias":false,"residual_multiplier":0.22,"rope_scaling":null,"tie_word_embeddings":true
granite-3.3-8b-instruct - 40 4096 32 8 12800 49159 131072 10000000.0 "attention_multiplier":0.0078125,"embedding_multiplier":12.0,"logits_scaling":16.0,"residual_multiplier":0.22,"tie_word_embeddings":true
"""
_SMOLLM3 = """
SmolLM3-3B 3075098624 36 2048 16 4 11008 128256 65536 5000000.0 "use_sliding_window":false,"sliding_window":null,"no_rope_layer_interval":4,"no_rope_layers":[1,1,1,0,1,1,1,0,1,1,1,0,1,1,1,0,1,1,1,0,1,1,1,0,1,1,1,0,1,1,1,0,1,1,1,0],"attention_bias":false,"mlp_bias":false,"max_window_layers":28
"""
_OLMO2 = """
OLMo-2-0425-1B 1484916736 16 2048 16 16 8192 100352 4096 500000 "attention_bias":false,"rms_norm_eps":1e-6
OLMo-2-1124-7B 7298617344 32 4096 32 32 11008 100352 4096 500000 "attention_bias":false,"rms_norm_eps":1e-6
OLMo-2-0325-32B - 64 5120 40 8 27648 100352 4096 500000 "attention_bias":false,"rms_norm_eps":1e-6
"""
_GEMMA = """
gemma-2b 2506172416 18 2048 8 1 16384 256000 8192 10000.0 "head_dim":256,"hidden_act":"gelu","hidden_activation":null,"rms_norm_eps":1e-6,"rope_scaling":null,"torch_dtype":"bfloat16"
gemma-7b 8537680896 28 3072 16 16 24576 256000 8192 10000.0 "head_dim":256,"hidden_act":"gelu_pytorch_tanh","rms_norm_eps":1e-6
"""
_NEOX = """
gpt-neox-20b 20554567680 44 6144 64 - 24576 50432 2048 10000 "hidden_act":"gelu_fast","rotary_pct":0.25,"bos_token_id":0,"eos_token_id":0,"layer_norm_eps":1e-5
pythia-14m 14067712 6 128 4 - 512 50304 512 10000 "rotary_pct":0.25,"use_parallel_residual":true
pythia-31m 30494720 6 256 8 - 1024 50304 1024 10000 "rotary_pct":0.25,"use_parallel_residual":true
pythia-70m 70426624 6 512 8 - 2048 50304 2048 10000 "rotary_pct":0.25,"use_parallel_residual":true
pythia-160m 162322944 12 768 12 - 3072 50304 2048 10000 "rotary_pct":0.25,"use_parallel_residual":true
pythia-410m 405334016 24 1024 16 - 4096 50304 2048 10000 "rotary_pct":0.25,"use_parallel_residual":true
pythia-1b 1011781632 16 2048 8 - 8192 50304 2048 10000 "rotary_pct":0.25,"use_parallel_residual":true
pythia-1.4b 1414647808 24 2048 16 - 8192 50304 2048 10000 "rotary_pct":0.25,"use_parallel_residual":true
pythia-2.8b 2775208960 32 2560 32 - 10240 50304 2048 10000 "rotary_pct":0.25,"use_parallel_residual":true
pythia-6.9b 6857302016 32 4096 32 - 16384 50432 2048 10000 "rotary_pct":0.25,"use_parallel_residual":true
pythia-12b 11846072320 36 5120 40 - 20480 50688 2048 10000 "rotary_pct":0.25,"use_parallel_residual":true
dolly-v2-3b - 32 2560 32 - 10240 50280 2048 10000 "rotary_pct":0.25,"use_parallel_residual":true,"custom_pipelines":{"text-generation":{}}
dolly-v2-12b 11841894400 36 5120 40 - 20480 50280 2048 10000 "rotary_pct":0.25,"use_parallel_residual":true
RedPajama-INCITE-Chat-3B-v1 2775864320 32 2560 32 - 10240 50432 2048 10000 "rotary_pct":1.0,"use_parallel_residual":false
RedPajama-INCITE-7B-Base 6857302016 32 4096 32 - 16384 50432 2048 10000 "rotary_pct":1.0,"use_parallel_residual":false
stablelm-base-alpha-3b 3637321728 16 4096 32 - 16384 50688 4096 10000 "rotary_pct":0.25,"use_parallel_residual":true
stablelm-base-alpha-7b - 16 6144 48 - 24576 50432 4096 10000 "rotary_pct":0.25,"use_parallel_residual":true
stablecode-completion-alpha-3b - 32 2560 32 - 10240 49152 16384 10000 "rotary_pct":0.25,"use_parallel_residual":true
polyglot-ko-1.3b - 24 2048 16 - 8192 30080 2048 10000 "rotary_pct":0.5,"use_parallel_residual":true
japanese-gpt-neox-3.6b - 36 2816 22 - 11264 32000 2048 10000 "rotary_pct":1.0,"use_parallel_residual":false
"""
_GPTJ = """
gpt-j-6b 6050882784 28 4096 16 - - 50400 2048 - "rotary":true,"rotary_dim":64,"activation_function":"gelu_new","scale_attn_weights":true
GPT-JT-6B-v1 6050882784 28 4096 16 - - 50400 2048 - "rotary":true,"rotary_dim":64,"activation_function":"gelu_new"
tiny-gptj - 2 64 4 - 256 1000 512 - "rotary_dim":4
"""
_NAMES = (
  'num_hidden_layers hidden_size num_attention_heads num_key_value_heads'
  ' intermediate_size vocab_size max_position_embeddings'
).split()
_GPTJ_NAMES = 'n_layer n_embd n_head - n_inner vocab_size n_positions'.split()
_TABLES = {
  'llama': (_LLAMA, [*_NAMES, 'rope_theta']),
  'qwen2': (_QWEN2, [*_NAMES, 'rope_theta']),
  **{
    name: (table, [*_NAMES, 'rope_theta'])
    for name, table in (
      ('qwen3', _QWEN3),
      ('phi3', _PHI3),
      ('granite', _GRANITE),
      ('smollm3', _SMOLLM3),
      ('olmo2', _OLMO2),
      ('gemma', _GEMMA),
    )
  },
  'mistral': (_MISTRAL, [*_NAMES, 'rope_theta']),
  'gpt_neox': (_NEOX, [*_NAMES, 'rotary_emb_base']),
  'gptj': (_GPTJ, [*_GPTJ_NAMES, '-']),
}


def _files():
  for model_type, (table, keys) in _TABLES.items():
    for line in table.strip().splitlines():
      name, count, *values, rest = line.split(' ', 10)
      document = {
        key: json.loads(value)
        for key, value in zip(keys, values, strict=True)
        if value != '-'
      }
      document |= json.loads('{' + rest + '}') | {'model_type': model_type}
      yield name.replace('-', '_').replace('.', '_'), document, count


class PublishedModelsTest(parameterized.TestCase):
  @parameterized.named_parameters(*_files())
  def test_config_is_read(self, document, count):
    family = families.matching(document)
    config = hf_config.read('config.json', document, family.config)
    names = _GPTJ_NAMES if family.name == 'gptj' else _NAMES
    self.assertEqual(
      (config.num_layers, config.model_dim, config.num_heads),
      tuple(document[name] for name in names[:3]),
    )
    self.assertEqual(config.max_positions, document[names[-1]])
    if count != '-':
      self.assertEqual(family.num_parameters(config), int(count))

  def test_dual_chunk_attention_is_refused_by_name(self):
    # Qwen2.5-7B-Instruct-1M has it.
    document = {
      'model_type': 'qwen2',
      **dict.fromkeys(_NAMES, 64),
      'dual_chunk_attention_config': {'chunk_size': 262144, 'local_size': 8192},
    }
    table = families.FAMILIES['qwen2'].config
    with self.assertRaisesRegex(
      errors.CheckpointError, 'dual_chunk_attention_config is .*chunk_size'
    ):
      hf_config.read('config.json', document, table)


if __name__ == '__main__':
  absltest.main()
