"""Defines GPT-J's serving params under the names that were published for Sax.

Names, values and inheritance come from three sources, so that their publish
commands work here without changes:

  mlperf4.0: the branch of tpu-inference/saxml for the submission to MLPerf
    Inference v4.0, with GPTJ4TokenizedFP16BS32 of one commit in its history;
  r1.2.0: the release of google/saxml, whose class names contain BF16;
  v3.1: Google's submission to MLPerf Inference v3.1, whose class names contain
    Opt10 and were also published without the module's name.

Two things differ on purpose:

- Beams follow the rule of the reference, unless BEAM_RULE is set.
- VOCABULARY_PATH is not set, so the tokenizer.json of the checkpoint is used.
  The value of upstream names a bucket of its authors.

QUANTIZATION = 'int8' replaces a class decorator of upstream. Stock Sax
quantizes only the weights. This server also quantizes the activations, unless
QUANTIZATION is overridden with 'int8_weights'.
"""

from typing import Any

from saxml_ext.families import servable

# These are the TPU compiler flags of upstream Saxml's GPT-J. Upstream's server
# passes them to XLA. Here they apply to program sets for TPU
# (`aot/tpu/compile_programs.py`), but not to a server that compiles by itself.
# They were tuned with the libtpu of early 2024. A libtpu that does not know a
# flag refuses to compile. libtpu 0.0.42 knows all of them.

# The flags of every class of the branch mlperf4.0. A class may override them.
XLA_FLAGS = {
  'xla_jf_auto_cross_replica_sharding': 'False',
  'xla_tpu_nd_short_transfer_max_chunks': '2048',
  'xla_tpu_perform_spmd_cse_prevention': 'True',
  'xla_tpu_rwb_fusion': 'False',
}

# These flags were tuned for batches of 32 on four chips of TPU v5e, for the
# GPT-J submission to MLPerf Inference. Names and values are those of the fork
# tpu-inference/saxml.
XLA_FLAGS_BATCH_32 = {
  # Sharding and communication.
  'xla_enable_async_collective_permute': 'true',
  'xla_jf_auto_cross_replica_sharding': 'false',
  'xla_jf_spmd_threshold_for_windowed_einsum_mib': '0',
  'xla_tpu_nd_short_transfer_max_chunks': '6369',
  'xla_tpu_perform_spmd_cse_prevention': 'true',
  'xla_tpu_spmd_unroll_windowed_einsum': 'true',
  # Fusion and layout.
  'xla_tpu_copy_fusion_pad_unpad_ratio': '183.24665260042565',
  'xla_tpu_dot_dot_fusion': 'False',
  'xla_tpu_dot_dot_fusion_duplicated': 'true',
  'xla_tpu_enable_dot_strength_reduction': 'false',
  'xla_tpu_enable_experimental_fusion_cost_model': 'True',
  'xla_tpu_order_dot_after_layout': 'False',
  'xla_tpu_reduce_loop_fusion_dup_with_unfusable_user': 'True',
  'xla_tpu_rwb_fusion': 'false',
  'xla_tpu_vector_load_fusion_window': '555',
  'xla_tpu_vector_store_fusion_window': '3495',
  # Copies, and prefetching into on-chip memory.
  'xla_tpu_async_copy_bandwidth_scaling_factor': '1.0171797766001474',
  'xla_tpu_copy_elision_analysis_allowance': '675',
  'xla_tpu_copy_insertion_use_region_analysis_limit': '1308',
  'xla_tpu_enforce_prefetch_fifo_order': 'True',
  'xla_tpu_memory_bound_loop_optimizer_options': 'enabled:true',
  'xla_tpu_msa_inefficient_use_to_copy_ratio': '0.7746306998901824',
  'xla_tpu_prefetch_interval_picker_size_override': '405728676',
  'xla_tpu_scoped_vmem_limit_kib': '30148',
  'xla_tpu_use_repeated_instance_for_preferred_prefetch_time': 'True',
  'xla_vf_vmem_enable_cross_program_prefetch_freeing': 'False',
  'xla_vf_vmem_max_outstanding_evictions': '1',
  'xla_vf_vmem_max_outstanding_prefetches': '11',
  'xla_vf_vmem_max_overlap_to_mem_size_async_copy_ratio': ('5.350891723154582'),
  'xla_vf_vmem_max_repacks': '2',
  'xla_vf_vmem_max_retries': '7',
  'xla_vf_vmem_min_overlap_to_async_copy_ratio': '1.0951678793653812',
  'xla_vf_vmem_preferred_overlap_to_async_copy_ratio': (
    '0.0019865563814992176'
  ),
  # Other flags.
  'xla_jf_rematerialization_percent_shared_memory_limit': '98',
  'xla_tpu_autofdo': 'false',
  'xla_tpu_enable_aggressive_broadcast_priority_update': 'True',
  'xla_tpu_licm_size_inflation_ratio': '1.1254822383176215',
}

_PACKAGE = 'saxml.server.pax.lm.params.'
_MODULE = _PACKAGE + 'gptj.'

_IDS: dict[str, Any] = {'TOKENIZED_INPUT': True, 'TOKENIZED_OUTPUT': True}
_V4_0_INPUTS = {**servable.EXTRA_INPUTS, 'temperature': 0.0}

TABLE: servable.Table = {
  _MODULE + 'GPTJ': servable.Params(
    'GPT-J 6B in float32, text in and out, one request at a time.',
    NUM_LAYERS=28,
    MODEL_DIMS=4096,
    HIDDEN_DIMS=16384,
    NUM_HEADS=16,
    DIMS_PER_HEAD=256,
    ROTARY_DIM=64,
    MAX_POSITION_EMBEDDINGS=2048,
    LAYER_NORM_EPSILON=1.0e-5,
    # The tokenizer has 50257 ids. The padded vocabulary is what the checkpoint
    # converter writes.
    VOCAB_SIZE=50401,
    VOCABULARY_CLASS='GPT2BPEVocabulary',
    SOS_ID=50256,
    EOS_ID=50256,
    EOS_PADDING_AND_NO_SOS=True,
    ICI_MESH_SHAPE=[1, 1, 1],
    USE_BATCH_SHARDING=True,
    BATCH_SIZE=1,
    BATCH_WAIT_SECS=0.2,
    MAX_LIVE_BATCHES=2,
    # Prompt and answer together use all but one of the 2048 positions.
    INPUT_SEQ_LEN=1919,
    MIN_DECODE_STEPS=30,
    MAX_DECODE_STEPS=128,
    NUM_SAMPLES=1,
    USE_BEAM_SEARCH=True,
    BEAM_SIZE=4,
    TOKENS_PER_BEAM=4,
    LENGTH_NORM_ALPHA=0.5,
    BEAM_SEARCH_EARLY_EXIT=False,
    EXTRA_INPUTS=servable.EXTRA_INPUTS,
  ),
  _MODULE + '_FourChips': servable.Params(
    'The common settings of all classes for 4 chips: bfloat16, 32 at a time.',
    'GPTJ',
    ICI_MESH_SHAPE=[1, 1, 4],
    DECODE_MESH_TRANSPOSE={'fprop_mdl': 'mdl', 'mdl': 'fprop_mdl'},
    MODEL_DTYPE='bfloat16',
    FPROP_DTYPE='bfloat16',
    USE_MATMUL_BEAM_SHUFFLE=True,
    BATCH_SIZE=32,
    MAX_DECODE_STEPS=[32, 64, 128],
  ),
  _MODULE + 'GPTJ4BF16BS32': servable.Params(
    'r1.2.0: GPT-J 6B in bfloat16, 32 at a time, written for 4 chips.',
    '_FourChips',
    USE_BATCH_SHARDING=False,
    BATCH_WAIT_SECS=4.0,
    MAX_LIVE_BATCHES=6,
    BUCKET_KEYS=[512, 1024, 1919],
  ),
  _MODULE + 'GPTJ4TokenizedBF16BS32': servable.Params(
    'The same with comma-separated ids in and out, as MLPerf sends them.',
    'GPTJ4BF16BS32',
    **_IDS,
  ),
  _MODULE + 'GPTJ4INT8BS32': servable.Params(
    """mlperf4.0: GPT-J 6B, 32 at a time, written for 4 chips.

    It runs in bfloat16 despite its name. Only classes named XLA use int8.
    """,
    '_FourChips',
    BUCKET_KEYS=[512, 1024, 1536, 1919],
  ),
  _MODULE + 'GPTJ4TokenizedINT8BS32': servable.Params(
    'The same with comma-separated ids in and out; still in bfloat16.',
    'GPTJ4INT8BS32',
    **_IDS,
  ),
  _MODULE + 'GPTJ4TokenizedINT8BS32XLA': servable.Params(
    """The same with int8 matrices.

    The submissions had int8 checkpoints. A float checkpoint is quantized when
    it is loaded. Upstream's server compiles it with the submissions' flags.
    """,
    'GPTJ4TokenizedINT8BS32',
    QUANTIZATION='int8',
    XLA_TPU_FLAGS=XLA_FLAGS_BATCH_32,
  ),
  _MODULE + 'GPTJ4TokenizedINT8BS32XLAEarly': servable.Params(
    "The same, but Pax's beam search stops when all beams have ended.",
    'GPTJ4TokenizedINT8BS32XLA',
    BEAM_SEARCH_EARLY_EXIT=True,
  ),
  _MODULE + 'GPTJ4TokenizedINT8BS32XLAWait40MB6': servable.Params(
    'The same with 4.0 s batch wait and, despite the name, 10 live batches.',
    'GPTJ4TokenizedINT8BS32XLAEarly',
    BATCH_WAIT_SECS=4.0,
    MAX_LIVE_BATCHES=10,
  ),
  _MODULE + '_Submitted': servable.Params(
    'The common settings of both submissions to MLPerf Inference v4.0.',
    'GPTJ4TokenizedINT8BS32XLAWait40MB6',
    VOCAB_SIZE=50400,
    EXTRA_INPUTS=_V4_0_INPUTS,
  ),
  _MODULE + 'GPTJ4TokenizedINT8BS32XLAWait40MB6Offline': servable.Params(
    'MLPerf Inference v4.0, Offline.', '_Submitted'
  ),
  _MODULE + 'GPTJ4TokenizedINT8BS32XLAWait40MB6Server': servable.Params(
    'MLPerf Inference v4.0, Server.',
    '_Submitted',
    BATCH_SIZE=36,
    MAX_DECODE_STEPS=[32, 48, 64, 72, 80, 96, 102, 128],
  ),
  _MODULE + 'GPTJ4TokenizedFP16BS32': servable.Params(
    'mlperf4.0 at 303279dc: the candidate without quantization, in bfloat16.',
    'GPTJ4TokenizedINT8BS32',
    VOCAB_SIZE=50400,
    EXTRA_INPUTS={**_V4_0_INPUTS, 'per_example_top_k': 100},
    TOKENS_PER_BEAM=3,
    MIN_DECODE_STEPS=35,
  ),
  _MODULE + 'GPTJ4BS32Int8Opt10Early': servable.Params(
    'MLPerf Inference v3.1, Offline: ids in and out, int8 matrices.',
    '_FourChips',
    **_IDS,
    QUANTIZATION='int8',
    XLA_TPU_FLAGS=XLA_FLAGS_BATCH_32,
    USE_BATCH_SHARDING=False,
    BUCKET_KEYS=[512, 1024, 1919],
    BEAM_SEARCH_EARLY_EXIT=True,
    aliases=(_PACKAGE + 'GPTJ4BS32Int8Opt10Early',),
  ),
  _MODULE + 'GPTJ4BS32Int8Opt10Wait40MB6': servable.Params(
    'MLPerf Inference v3.1, Server: 4.0 s batch wait and 6 live batches.',
    'GPTJ4BS32Int8Opt10Early',
    BATCH_WAIT_SECS=4.0,
    MAX_LIVE_BATCHES=6,
    aliases=(_PACKAGE + 'GPTJ4BS32Int8Opt10Wait40MB6',),
  ),
}
