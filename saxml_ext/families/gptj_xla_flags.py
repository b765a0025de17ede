"""Flags of the TPU compiler that upstream Saxml's GPT-J is compiled with.

Upstream's own server hands them to XLA. Here a program set for TPU can be
compiled with them (`aot/tpu/compile_programs.py`); a server that compiles takes
none. They were tuned with the libtpu of early 2024. Not every libtpu knows
every flag, and one that does not refuses to compile; 0.0.42 knows all of these.
"""

# For every class of the branch mlperf4.0, below the flags of its own.
BASE = {
  'xla_jf_auto_cross_replica_sharding': 'False',
  'xla_tpu_nd_short_transfer_max_chunks': '2048',
  'xla_tpu_perform_spmd_cse_prevention': 'True',
  'xla_tpu_rwb_fusion': 'False',
}

# Tuned for batches of 32 on four chips of TPU v5e by those who submitted GPT-J
# to MLPerf Inference. Names and values as in the fork tpu-inference/saxml.
BATCH_32 = {
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
  # Copies, and what is fetched ahead into on-chip memory.
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
  # The rest.
  'xla_jf_rematerialization_percent_shared_memory_limit': '98',
  'xla_tpu_autofdo': 'false',
  'xla_tpu_enable_aggressive_broadcast_priority_update': 'True',
  'xla_tpu_licm_size_inflation_ratio': '1.1254822383176215',
}
